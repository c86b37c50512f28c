extends Reference
# What is said to a server about one game: greeting, requests, time limits, repeats after a loss. It knows neither nodes nor
# pictures.
#
# Requests are done one after the other; the first in the queue is in progress. Call `advance` in every tick. Nothing here waits.

signal welcomed(fields)
signal lost(why)
signal opened(fields)  # the game of `token`, also each time it was opened again
signal offered(turn, instructions)
signal answered(request, message)  # an answer or an event of a request, each once and in order; the last one has ended it
signal failed(code, text, what_to_do)  # a request has ended

const Zmtp := preload("zmtp.gd")
const Message := preload("message.gd")
const Request := preload("request.gd")
const RETRY_S := 0.5
const READ_USEC := 1750  # a tick takes no further message after this time; the rest is read in the next
const MAX_HEADER_BYTES := 65536  # of a request, until the server has named its own limit

var timeout_s := 30.0
var token := ""  # of the game; "": the next request opens a new one
var token_before := ""  # of the game to go on with if the next one cannot be opened
var turns := 0
var new_game := {}  # fields of `open` for a new game
var picture := PoolByteArray()  # that a new game starts from; empty: none

var _turns_link := Zmtp.new()
var _control_link := Zmtp.new()
var _turns_seen := 0  # connections of each link that are known
var _control_seen := 0
var _address := ""
var _session := ""
var _stage := ""  # of this connection: "", hello, welcomed, open, opened; refused: no `hello` until the next request
var _welcome := {}
var _hello_id := ""
var _open_id := ""
var _cancel_id := ""  # of a cancel that is not answered
var _queue := []  # of Request
var _statuses := []  # requests for the status, which go to the control connection: [id, since_s]
var _number := 0
var _clock_s := 0.0  # runs only while ticks come: a game that stood still times nothing out
var _last_msec := 0
var _heard_s := 0.0  # when bytes came last, when an answer, when a ping was sent
var _answer_s := 0.0
var _pinged_s := 0.0


func is_busy() -> bool:
	return not _queue.empty()


# Whether a turn may be asked for: nothing is in progress that was not cancelled.
func may_say() -> bool:
	return _queue.empty() or _queue.back().cancelled


func ask(request: Request, host: String, port: int) -> void:
	if request.type in ["open", "resume"]:
		_session = ""
	if _stage == "refused":
		_stage = ""
	elif _stage in ["open", "opened"] and _session == "":
		_stage = "welcomed"
	if _queue.empty():
		_heard_s = _clock_s
	request.heard_s = _clock_s
	_queue.append(request)
	_open_links(host, port)


func ask_status(host: String, port: int) -> void:
	_statuses.append(["", _clock_s])
	_open_links(host, port)


# Stop what is in progress; what waits behind it is dropped.
func cancel() -> void:
	for request in _queue:
		request.cancelled = true
	while _queue.size() > 1:
		_queue.pop_back()
		emit_signal("failed", "cancelled", "the turn was cancelled before it was sent", "")
	if is_busy() and _queue[0].id == "" and not _queue[0].again:
		_fail("cancelled", "the turn was cancelled before it was sent", "")


# End all requests with this error, and both connections.
func close(code: String, text: String, what_to_do: String) -> void:
	var count := _queue.size() + _statuses.size()
	leave()
	for _each in count:
		emit_signal("failed", code, text, what_to_do)


# End all requests and both connections without a word.
func leave() -> void:
	_turns_link.close()
	_control_link.close()
	_stage = ""
	_queue.clear()
	_statuses.clear()


func advance(now_msec: int) -> void:
	_clock_s += min(now_msec - _last_msec, 250) / 1000.0
	_last_msec = now_msec
	_turns_link.poll()
	_control_link.poll()
	var end_usec := OS.get_ticks_usec() + READ_USEC
	var frames := _control_link.next(end_usec)
	while not frames.empty():
		_take_control(Message.decode(frames))
		frames = _control_link.next(end_usec)
	frames = _turns_link.next(end_usec)
	while not frames.empty():
		_take(Message.decode(frames))
		frames = _turns_link.next(end_usec)
	_watch_links()
	_watch_clock()
	_go_on()


func _open_links(host: String, port: int) -> void:
	_address = "tcp://%s:%d" % [host, port]
	for link in [_turns_link, _control_link]:
		if link.state in [Zmtp.State.IDLE, Zmtp.State.FOREIGN]:
			link.open(host, port if link == _turns_link else port + 1)


func _watch_links() -> void:
	if _turns_link.heard:
		_turns_link.heard = false
		_heard_s = _clock_s
	if _turns_link.connections != _turns_seen:
		_turns_seen = _turns_link.connections
		_heard_s = _clock_s
		_stage = ""
		_lost()
	elif _stage != "" and _turns_link.state != Zmtp.State.READY:
		_stage = ""
		_lost()
		emit_signal("lost", _turns_link.why)
	if _control_link.connections != _control_seen:
		_control_seen = _control_link.connections
		_cancel_id = ""
		for status in _statuses:
			status[0] = ""
		if is_busy():
			_queue[0].cancel_sent = false
	if is_busy() and _turns_link.state == Zmtp.State.FOREIGN:
		_fail_all("protocol", "%s: %s" % [_address, _turns_link.why], "give the address that animegamer-rt serve prints")


func _watch_clock() -> void:
	if not _statuses.empty() and _clock_s - _statuses[0][1] >= timeout_s:
		_statuses.pop_front()
		var silence := _silence(" (control, the port above the one given)", _control_link.why)
		emit_signal("failed", silence[0], silence[1], silence[2])
	if not is_busy():
		return
	var request: Request = _queue[0]
	var heard_s: float = max(request.heard_s, _answer_s) if request.slow or request.turn > 0 else request.heard_s
	var silent_s := _clock_s - _heard_s
	if _clock_s - heard_s >= timeout_s:
		if _stage in ["hello", "open"]:
			_turns_link.drop("the server gave no answer")
		var error := request.refused if not (request.begun or request.refused.empty()) else _silence("", _turns_link.why)
		_fail(error[0], error[1], error[2])
	elif silent_s >= timeout_s / 2:
		_heard_s = _clock_s
		_turns_link.drop("nothing came for %.1f s" % silent_s if not _welcome.empty() else Zmtp.NO_GAME_SERVER)
	elif _turns_link.state == Zmtp.State.READY and _stage in ["welcomed", "open", "opened"]:
		if min(silent_s, _clock_s - _pinged_s) >= timeout_s / 4:
			_pinged_s = _clock_s
			_send("ping", {}, {})
		if request.turn > 0 and request.id != "" and _clock_s - max(request.heard_s, request.sent_s) >= timeout_s:
			request.id = ""  # the rest of a turn may be lost: ask for it


# The error of a request that got no answer: code, text, what to do.
func _silence(where: String, why: String) -> Array:
	var what_to_do := "check the server; its games are kept: go on with resume(token)"
	if _welcome.empty():
		what_to_do = "check that animegamer-rt serve runs there, and that this is the address it printed"
	var trouble := why if why != "" else "nothing answered" if _welcome.empty() else "it stopped answering"
	return ["timed_out", "%s%s: no answer within %s s (%s)" % [_address, where, timeout_s, trouble], what_to_do]


# Send what comes next.
func _go_on() -> void:
	if _control_link.state == Zmtp.State.READY:
		for status in _statuses:
			if status[0] == "":
				status[0] = _new_id()
				_control_link.send(Message.encode("status", {"id": status[0]}, {}))
	if _turns_link.state != Zmtp.State.READY:
		return
	if _stage == "":
		var form := {"versions": [1], "client": "animegamer-godot 0.1.0", "pixel_format": "rgba32", "minor": 2}
		_stage = "hello"
		_hello_id = _send("hello", {}, form)
	elif not is_busy():
		return
	elif _queue[0].type == "connect" and _stage in ["welcomed", "opened"]:
		_end()
		emit_signal("welcomed", _welcome)
	elif _stage == "welcomed" and _clock_s >= _queue[0].at_s:
		_stage = "open"
		_open_id = _send("open", {}, {"token": token}) if token != "" else _send("open", {}, new_game, picture)
	elif _stage == "opened":
		_send_first(_queue[0])


func _send_first(request: Request) -> void:
	if request.id == "" and _clock_s >= request.at_s and (_cancel_id == "" or request.cancelled):
		var message := request.to_send(_session, token)
		request.sent_s = _clock_s
		request.id = _send(message[0], message[1], message[2])
	elif request.id != "" and request.cancelled and not request.cancel_sent:
		_cancel_id = _new_id()
		var header := {"id": _cancel_id, "session": _session}
		request.cancel_sent = _control_link.send(Message.encode("cancel", header, {"token": token}))


# Send a message; "": it is too long, and the request in progress has ended.
func _send(type: String, header: Dictionary, fields: Dictionary, buffer := PoolByteArray()) -> String:
	header["id"] = _new_id()
	var frames := Message.encode(type, header, fields, buffer)
	var most: int = _welcome.get("limits", {}).get("header_bytes", MAX_HEADER_BYTES)
	if frames[1].size() > most:  # a server can tell nobody whose header was too long
		_stage = "welcomed" if type == "open" else _stage
		_fail("too_large", "`%s` is too long to be sent: %d bytes, at most %d" % [type, frames[1].size(), most], "shorten its text")
		return ""
	_turns_link.send(frames)
	return header.id


func _new_id() -> String:
	_number += 1
	return str(_number)


# The connection is another one, or none.
func _lost() -> void:
	if is_busy() and _queue[0].id != "":
		if _queue[0].type == "export":
			_fail("connection_lost", "the connection was lost while the game was exported", "export it again")
		else:
			_queue[0].lost()


func _end() -> void:
	_queue.pop_front()
	if is_busy():
		_queue[0].heard_s = _clock_s


func _fail(code: String, text: String, what_to_do: String) -> void:
	if _queue[0].type in ["open", "resume"]:
		token = token_before
	_end()
	emit_signal("failed", code, text, what_to_do)


func _fail_all(code: String, text: String, what_to_do: String) -> void:
	while is_busy():
		_fail(code, text, what_to_do)


func _take(message: Dictionary) -> void:
	if message.has("refused"):
		_turns_link.drop("the server's message cannot be read: %s" % message.text)
		_fail_all(message.refused, "%s: %s" % [_address, message.text], "check that the address is a game server's")
		return
	if message.type == "error":
		_take_error(message)
		return
	_answer_s = _clock_s
	var parent: String = message.get("parent", "")
	if message.type == "welcome":
		if parent == _hello_id and _stage == "hello":
			_stage = "welcomed"
			_welcome = message.fields
			if is_busy() and _queue[0].type == "connect":
				_end()
			emit_signal("welcomed", _welcome)
	elif message.type == "opened" and parent == _open_id:
		_take_opened(message)
	elif message.type == "offer":
		if message.get("session", "") == _session and typeof(message.fields.get("instructions")) == TYPE_ARRAY:
			emit_signal("offered", message.get("turn", 0), message.fields.instructions)
	elif is_busy() and parent != "" and parent == _queue[0].id:
		_take_answer(_queue[0], message)


func _take_opened(message: Dictionary) -> void:
	var fields: Dictionary = message.fields
	var running: Dictionary = fields.get("running", {})
	_stage = "opened"
	_session = message.get("session", "")
	token = fields.get("token", token)
	turns = fields.get("turns", turns)
	if is_busy():
		var request: Request = _queue[0]
		if request.is_opening():
			_end()
		elif request.is_anothers([running]):
			_fail_as_anothers(request)
		if request.type == "resume" and not running.empty():
			var rest := Request.new("replay", {}, running.turn)
			rest.turn_id = running.turn_id
			rest.heard_s = _clock_s
			_queue.push_front(rest)
	emit_signal("opened", fields)


func _take_answer(request: Request, message: Dictionary) -> void:
	request.heard_s = _clock_s
	match request.take(message):
		Request.Took.AGAIN:
			request.id = ""
		Request.Took.ANOTHERS:
			_fail_as_anothers(request)
		Request.Took.PART:
			emit_signal("answered", request, message)
		Request.Took.END:
			_end()
			turns = message.fields.get("turns", turns) if request.is_turn() or request.type == "rewind" else turns
			emit_signal("answered", request, message)


func _fail_as_anothers(request: Request) -> void:
	var text := "the server lost turn %d, and another client has played one of that number since" % request.turn
	_fail("no_such_turn", text, "list the turns, and say it again if it still fits")


func _take_error(message: Dictionary) -> void:
	var parent: String = message.get("parent", "")
	var code := str(message.fields.get("code", "internal"))
	var text := str(message.fields.get("text", ""))
	var what_to_do := str(message.fields.get("do", ""))
	if code == "hello_first":
		_stage = ""
		_lost()
	elif parent != "" and parent == _hello_id and _stage == "hello":
		if code in (Request.LATER if _welcome.empty() else Request.LATER_AGAIN):
			_turns_link.drop(text)
		else:
			_stage = "refused"
			_fail_all(code, text, what_to_do)
	elif parent != "" and parent == _open_id and _stage == "open":
		_stage = "welcomed"
		_refuse(code, text, what_to_do)
	elif is_busy() and parent != "" and parent == _queue[0].id:
		_refuse(code, text, what_to_do)
	elif parent == "" and not message.has("turn") and not message.has("session"):
		_fail_all(code, text, what_to_do)


func _refuse(code: String, text: String, what_to_do: String) -> void:
	if not is_busy():
		return
	var request: Request = _queue[0]
	if request.refuse(code, text, what_to_do) == Request.Took.AGAIN:
		request.id = ""
		request.at_s = _clock_s + (RETRY_S if not request.refused.empty() else 0.0)
	elif code == "no_such_turn" and request.cancelled:
		_fail("cancelled", "the turn was cancelled", "")
	else:
		_fail(code, text, what_to_do)


func _take_control(message: Dictionary) -> void:
	var parent: String = message.get("parent", "")
	if parent == "":
		return
	if parent == _cancel_id:
		_cancel_id = ""
		if is_busy() and _queue[0].cancelled and not message.fields.get("running", true):
			_queue[0].cancel_sent = false  # it arrived before the turn did: ask until the turn has ended
	for status in _statuses:
		if status[0] == parent:
			_statuses.erase(status)
			if message.type == "error":
				emit_signal("failed", message.fields.get("code", ""), message.fields.get("text", ""), message.fields.get("do", ""))
			else:
				emit_signal("answered", Request.new("status"), message)
			return
