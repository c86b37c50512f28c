extends Reference
# One request in progress: what to send for it on each connection, and whether what comes is its next answer. It knows neither
# connections nor the clock.

enum Took { NOTHING, PART, END, AGAIN, ANOTHERS }  # PART and END are for the game; AGAIN: send the request again

# Refusals that pass: of any request, of one that was sent before, of the rest of a turn.
const LATER := ["starting"]
const LATER_AGAIN := ["starting", "draining", "busy", "rate_limited", "too_many_sessions"]
const LATER_IN_TURN := ["starting", "draining", "busy", "rate_limited", "too_many_sessions", "degraded", "turn_running"]

var type := ""  # connect, open, resume, turn, replay, rewind, branch, list, export, close
var fields := {}
var turn := 0  # its number, once known
var turn_id := ""
var slow := false  # it waits in the server's queue: it may take as long as the server answers pings
var id := ""  # under which it was sent last; "": it has to be sent
var again := false  # it was sent on an earlier connection
var begun := false  # an event has come
var cancelled := false
var cancel_sent := false
var refused := []  # code, text, what to do: of a refusal that passes
var at_s := 0.0  # not to be sent before
var heard_s := 0.0
var sent_s := 0.0

var _last_seq := -1
var _gap_after := -2  # the event behind which something was asked for again
var _understood := false
var _check := false  # to ask whose turn has the number of this one, before its rest is asked for
var _checking := false


# its_turn, after_seq: of a replay.
func _init(its_type: String, its_fields := {}, its_turn := 0, after_seq := -1) -> void:
	type = its_type
	fields = its_fields
	turn = its_turn
	slow = type == "export"
	_last_seq = after_seq


func is_turn() -> bool:
	return type in ["turn", "replay"]


# It ends when the connection, or the game, is open.
func is_opening() -> bool:
	return type in ["connect", "open", "resume"]


# The connection is another one.
func lost() -> void:
	again = true
	_check = turn > 0 and turn_id != ""
	id = ""


# The message to send now: type, header, fields.
func to_send(session: String, token: String) -> Array:
	_checking = _check
	if _check:
		return ["list", {"session": session}, {"token": token, "before": turn + 1}]
	if turn > 0:
		return ["replay", {"session": session, "turn": turn}, {"token": token, "after_seq": _last_seq}]
	var all := fields.duplicate()
	all["token"] = token
	return [type, {"session": session}, all]


# What to do with an answer.
func take(message: Dictionary) -> int:
	refused = []
	if _checking:
		_check = false
		return Took.ANOTHERS if is_anothers(message.fields.get("turns")) else Took.AGAIN
	if is_turn():
		return _take_event(message)
	return Took.PART if message.type in ["progress", "restarting"] else Took.END


func _take_event(message: Dictionary) -> int:
	turn = message.get("turn", turn)
	begun = true
	var is_done: bool = message.type == "done"
	if message.has("seq"):
		if message.seq > _last_seq + 1:
			# Events were lost. They are asked for once, as the server may drop the same again; and once more after `done`.
			if not is_done and _gap_after == _last_seq:
				return Took.NOTHING
			_gap_after = _last_seq
			return Took.AGAIN
		if message.seq <= _last_seq and not is_done:
			return Took.NOTHING
		_last_seq = int(max(message.seq, _last_seq))
	elif message.type == "understood":
		if _understood:
			return Took.NOTHING  # a replay sends it again
		_understood = true
	if message.type == "accepted":
		turn_id = str(message.fields.get("turn_id", ""))
	return Took.END if is_done else Took.PART


# Whether the turns of `listed`, or the one of `opened.running`, say that the number is another client's turn: a server that was
# killed keeps no turn that was not done, and who else has the token may have played since.
func is_anothers(listed) -> bool:
	if typeof(listed) != TYPE_ARRAY or turn_id == "":
		return false
	for other in listed:
		if typeof(other) == TYPE_DICTIONARY and other.get("turn") == turn and other.get("turn_id") != turn_id:
			return true
	return false


# What to do when the server has refused it: AGAIN, with `refused` if only after a while, or END.
func refuse(code: String, text: String, what_to_do: String) -> int:
	if code in (LATER_IN_TURN if begun else LATER_AGAIN if again else LATER):
		refused = [code, text, what_to_do]
		return Took.AGAIN
	if _checking:
		_check = false  # what comes of the turn itself will tell
		return Took.AGAIN
	if code == "no_such_turn" and type == "turn" and turn > 0 and not cancelled:
		turn = 0  # the server has lost it: the same turn_id plays it again, and what was seen is skipped
		return Took.AGAIN
	return Took.END
