class_name AnimeGamerSession
extends Node
# One game on an AnimeGamer server: say what happens next, get the new state and a clip of pictures.
#
# It connects at the first request, keeps the game when the connection or the server is lost, and goes on by itself. All of
# its work is done in `_process`, also while the tree is paused, and none of it waits.

signal connected(welcome)  # fields of `welcome`: bundle, limits, state; also each time it connected again
signal disconnected(text)  # nothing has to be done: what was asked for goes on when it has connected again
signal opened(token)  # keep the token with a saved game: resume(token)
signal understood(fields)  # text: what the words were taken to mean, if the bundle reads everyday words
signal state(fields)  # motion_level, social, ..; character; shown: the values to display
signal progress(step, steps, seconds_left)
signal frame(index, count, image)  # an Image, as it arrives; `texture` shows it at its time
signal done(fields)  # the turn is part of the game and on the server's disk
signal rewound(fields)  # turns, character
signal closed
signal error(code, text, what_to_do)  # the request has ended; `code` is one of PROTOCOL.md's or timed_out, bad_argument

const Zmtp := preload("zmtp.gd")
const Message := preload("message.gd")
const Clip := preload("clip.gd")
const PING_S := 5.0  # of silence in a request, until the server is asked whether it is there
const DROP_S := 15.0  # of silence in a request, until the connection is made anew
const RETRY_S := 1.0
const LATER := ["starting", "busy", "draining", "degraded"]  # refusals of a turn that may still be running

export var host := "127.0.0.1"  # an address in numbers: looking up a name would wait
export var port := 5570  # of the turns; control is the next port
export var timeout_s := 30.0  # a request without an answer for so long ends with the error timed_out
export var game_seed := -1  # of a new game; -1: the server draws one

var texture := ImageTexture.new()  # the picture of this moment; the last one is held between turns
var token := ""  # of the game; "" before resume() or say(): a new game
var turns := 0
var character := {}
var welcome := {}

var _turns_link := Zmtp.new()
var _control_link := Zmtp.new()
var _turns_seen := 0  # connections of each link that are known
var _control_seen := 0
var _session := ""
var _stage := ""  # of this connection: "", hello, welcomed, open, opened
var _queue := []  # requests; the first is in progress
var _clip := Clip.new(texture)
var _number := 0
var _clock_s := 0.0  # runs only while polls come: a game that stood still times nothing out
var _last_msec := 0
var _heard_s := 0.0
var _pinged := false
var _random := RandomNumberGenerator.new()


func _init() -> void:
	pause_mode = PAUSE_MODE_PROCESS
	_random.randomize()


# Play a turn. While one runs this is refused, unless that one was cancelled: "say this instead" is cancel(), then say().
func say(instruction: String) -> void:
	if instruction.strip_edges() == "":
		_report("bad_argument", "the instruction is empty", "say what happens next")
	elif not _queue.empty() and not _queue.back().cancel:
		_report("turn_running", "a request is in progress", "wait for `done`, or call cancel() first")
	else:
		_ask({"type": "turn", "fields": {"instruction": instruction, "turn_id": _new_turn_id()}})


# Stop the running turn: it ends with the error `cancelled`. Nothing happens if none runs.
func cancel() -> void:
	for request in _queue:
		request.cancel = true
	while _queue.size() > 1:
		_queue.pop_back()
		_report("cancelled", "the turn was cancelled before it was sent", "")
	if not _queue.empty() and _queue[0].id == "" and not _queue[0].again:
		_end()
		_report("cancelled", "the turn was cancelled before it was sent", "")


# Delete the turns after this one; 0 deletes all. Ends with `rewound`.
func rewind(turn: int) -> void:
	_ask_alone({"type": "rewind", "fields": {"turn": turn}})


# End the game for good. Ends with `closed`. To go on later keep the token instead.
func close_game() -> void:
	_ask_alone({"type": "close", "fields": {}})


# Go on with the game of this token. Ends with `opened`; if a turn is running there, its events come too.
func resume(its_token: String) -> void:
	token = its_token
	_session = ""
	if _stage in ["open", "opened"]:
		_stage = "welcomed"
	_ask_alone({"type": "resume", "fields": {}})


func is_busy() -> bool:
	return not _queue.empty()


# Pictures that wait for their time.
func pictures_waiting() -> int:
	return _clip.waiting()


func _ask_alone(request: Dictionary) -> void:
	if is_busy():
		_report("turn_running", "a request is in progress", "wait for its end, or call cancel() first")
	else:
		_ask(request)


func _ask(request: Dictionary) -> void:
	# id: of the request as it was sent last; again: it was sent before; turn: 0, unknown
	for key in ["id", "turn", "last_seq", "again", "cancel", "cancel_sent", "at_s"]:
		if not request.has(key):
			request[key] = {"id": "", "turn": 0, "last_seq": -1, "at_s": 0.0}.get(key, false)
	if _queue.empty():
		_heard_s = _clock_s
	_queue.append(request)
	if _turns_link.state in [Zmtp.State.IDLE, Zmtp.State.FOREIGN]:
		_turns_link.open(host, port)
		_control_link.open(host, port + 1)


func _process(_delta: float) -> void:
	var now := OS.get_ticks_msec()
	_clock_s += min(now - _last_msec, 250) / 1000.0
	_last_msec = now
	for frames in _turns_link.poll():
		_take(Message.decode(frames))
	for frames in _control_link.poll():
		_take_control(Message.decode(frames))
	_watch_links()
	_go_on()
	_clip.show(now)


func _exit_tree() -> void:
	_turns_link.close()
	_control_link.close()
	_stage = ""
	_queue.clear()


func _watch_links() -> void:
	if _turns_link.heard:
		_turns_link.heard = false
		_pinged = false
		_heard_s = _clock_s
	if _turns_link.connections != _turns_seen:
		_turns_seen = _turns_link.connections
		_stage = ""
		_unsend()
	elif _stage != "" and _turns_link.state != Zmtp.State.READY:
		_stage = ""
		_unsend()
		emit_signal("disconnected", _turns_link.why)
	if _control_link.connections != _control_seen:
		_control_seen = _control_link.connections
		if not _queue.empty():
			_queue[0].cancel_sent = false
	if not is_busy():
		return
	var silent := _clock_s - _heard_s
	if _turns_link.state == Zmtp.State.FOREIGN:
		_end()
		_report("protocol", _turns_link.why, "give the address that animegamer-rt serve prints")
	elif silent > timeout_s:
		_end()
		var why := _turns_link.why if _turns_link.why != "" else "%s:%d gave no answer for %d s" % [host, port, timeout_s]
		_report("timed_out", why, "is the server there? start it: animegamer-rt serve")
	elif silent > DROP_S:
		_turns_link.drop("the server gave no answer")
	elif silent > PING_S and not _pinged:
		_pinged = _turns_link.send(Message.encode("ping", {"id": _new_id()}, {}))


# Send what comes next on this connection.
func _go_on() -> void:
	if _turns_link.state != Zmtp.State.READY:
		return
	match _stage:
		"":
			var form := {"versions": [1], "client": "animegamer-godot 0.1.0", "pixel_format": "rgba32", "minor": 1}
			_stage = "hello"
			_turns_link.send(Message.encode("hello", {"id": _new_id()}, form))
		"welcomed":
			if is_busy():
				var fields := {"token": token} if token != "" else {"seed": game_seed} if game_seed >= 0 else {}
				_stage = "open"
				_turns_link.send(Message.encode("open", {"id": _new_id()}, fields))
		"opened":
			if is_busy():
				_send_first(_queue[0])


func _send_first(request: Dictionary) -> void:
	if request.type == "resume":
		_end()
	elif request.id == "" and _clock_s >= request.at_s:
		request.id = _new_id()
		var header := {"id": request.id, "session": _session}
		var type: String = request.type
		var fields: Dictionary = request.fields.duplicate()
		if request.turn > 0:
			type = "replay"
			header["turn"] = request.turn
			fields = {"after_seq": request.last_seq}
		fields["token"] = token
		_turns_link.send(Message.encode(type, header, fields))
	elif request.id != "" and request.cancel and not request.cancel_sent:
		var header := {"id": _new_id(), "session": _session}
		request.cancel_sent = _control_link.send(Message.encode("cancel", header, {"token": token}))


# The request in progress has to be sent again.
func _unsend(after_s: float = 0.0) -> void:
	if is_busy():
		_queue[0].again = _queue[0].again or _queue[0].id != ""
		_queue[0].id = ""
		_queue[0].at_s = _clock_s + after_s


func _end() -> void:
	_queue.pop_front()
	_heard_s = _clock_s


func _take(message: Dictionary) -> void:
	if message.has("refused"):
		_turns_link.drop("the server's message cannot be read: %s: %s" % [message.refused, message.text])
		return
	var fields: Dictionary = message.fields
	match message.type:
		"welcome":
			_stage = "welcomed"
			welcome = fields
			_clip.fps = max(1.0, fields.get("bundle", {}).get("fps", 8.0))
			emit_signal("connected", fields)
		"opened":
			_take_opened(message)
		"error":
			_take_error(message)
		"rewound", "closed":
			if _is_answer(message):
				_end()
				if message.type == "closed":
					token = ""
					_session = ""
					_stage = "welcomed"
					emit_signal("closed")
				else:
					_learn(fields)
					emit_signal("rewound", fields)
		_:
			if _is_answer(message):
				_take_event(_queue[0], message)


func _is_answer(message: Dictionary) -> bool:
	return is_busy() and message.get("parent", "") == _queue[0].id and _queue[0].id != ""


func _learn(fields: Dictionary) -> void:
	turns = fields.get("turns", turns)
	character = fields.get("character", character)


func _take_opened(message: Dictionary) -> void:
	var fields: Dictionary = message.fields
	_stage = "opened"
	_session = message.get("session", "")
	token = fields.get("token", token)
	_learn(fields)
	if is_busy() and _queue[0].type == "resume" and fields.has("running"):
		_ask({"type": "turn", "fields": {}, "turn": fields.running.turn})
	emit_signal("opened", token)


func _take_event(request: Dictionary, message: Dictionary) -> void:
	var fields: Dictionary = message.fields
	if message.has("turn"):
		request.turn = message.turn
	if message.has("seq"):
		if message.seq <= request.last_seq:
			return
		if message.seq > request.last_seq + 1 and message.type != "done":
			_unsend()  # events were lost: replay from the last one
			return
		request.last_seq = message.seq
	match message.type:
		"understood":
			emit_signal("understood", fields)
		"state":
			emit_signal("state", fields)
		"progress":
			emit_signal("progress", fields.get("step", 0), fields.get("steps", 1), fields.get("seconds_left", 0.0))
		"frame":
			var image := _clip.add(fields, message.buffer)
			emit_signal("frame", fields.index, fields.count, image)
		"done":
			_end()
			_learn(fields)
			emit_signal("done", fields)


func _take_error(message: Dictionary) -> void:
	var code: String = str(message.fields.get("code", "internal"))
	if code == "hello_first":
		_stage = ""
		_unsend()
	elif _is_answer(message) and _queue[0].turn > 0 and code == "no_such_turn" and not _queue[0].fields.empty():
		_queue[0].turn = 0  # the server lost the turn before it was finished: play it
		_queue[0].last_seq = -1
		_unsend()
	elif _is_answer(message) and _queue[0].again and code in LATER:
		_unsend(RETRY_S)
	else:
		if _stage == "open":
			_stage = "welcomed"
			_end()
		elif _is_answer(message):
			_end()
		elif message.has("parent"):
			return  # of a request that was sent again since
		_report(code, str(message.fields.get("text", "")), str(message.fields.get("do", "")))


func _take_control(message: Dictionary) -> void:
	if is_busy() and _queue[0].cancel and message.get("type", "") == "cancelling" and not message.fields.get("running", true):
		_queue[0].cancel_sent = false  # it arrived before the turn did: ask until the turn has ended


func _report(code: String, text: String, what_to_do: String) -> void:
	call_deferred("emit_signal", "error", code, text, what_to_do)


func _new_id() -> String:
	_number += 1
	return str(_number)


func _new_turn_id() -> String:
	return "godot-%08x%08x%08x" % [_random.randi(), _random.randi(), _random.randi()]
