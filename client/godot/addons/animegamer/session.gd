class_name AnimeGamerSession
extends Node
# One game on an AnimeGamer server: say what happens next, get the new state and a clip of pictures.
#
# It connects at the first request, keeps the game when the connection or the server is lost, and goes on by itself. All of
# its work is done in `_process`, also while the tree is paused, and none of it waits.

signal connected(welcome)  # fields of `welcome`: bundle, limits, state; also each time it connected again
signal disconnected(text)  # nothing has to be done: what was asked for goes on when it has connected again
signal opened(token)  # keep the token with a saved game: resume(token)
signal offered(instructions)  # suggestions that are answered at once; also in `offers`
signal accepted(fields)  # the server has the turn; turn_id, place, estimate_s, replayed
signal understood(fields)  # text: what the words were taken to mean, if the bundle reads everyday words
signal state(fields)  # motion_level, social, ..; character; shown: the values to display
signal progress(step, steps, seconds_left)  # of a turn; of an export: turns written
signal frame(index, count, image)  # an Image, as it arrives; `texture` shows it at its time
signal done(fields)  # the turn is part of the game and on the server's disk
signal rewound(fields)  # turns, character
signal branched(fields)  # token, turns: of a second game; resume(fields.token), here or in another node
signal listed(turns, more)  # up to 100 turns: turn, instruction, turn_id, ..; more: there are turns before these
signal exported(fields)  # folder (on the server's machine), turns, files
signal status(fields)  # of the server: state, queue, ..
signal closed
signal error(code, text, what_to_do)  # the request has ended; `code` is one of PROTOCOL.md's, or timed_out, closed, ..

const Conversation := preload("conversation.gd")
const Request := preload("request.gd")
const Clip := preload("clip.gd")
const MAX_PICTURE_BYTES := 8388608

export var host := "127.0.0.1"  # localhost or an address in numbers: looking up a name would wait
export var port := 5570  # of the turns; control is the next port
export var timeout_s := 30.0  # a request without an answer for so long ends with the error timed_out
export var game_seed := -1  # of a new game that say() opens; -1: the server draws one

var texture := ImageTexture.new()  # the picture of this moment; the last one is held between turns
var token := ""  # of the game; "" before resume(), open_game() or say(): a new game
var turns := 0
var character := {}
var welcome := {}
var seen := {}  # what the server saw in the picture that the game was opened with: text, people, motion, ..
var offers := [] setget , get_offers  # see `offered`; they hold until the next turn

var _talk := Conversation.new()
var _clip := Clip.new(texture)
var _offers_turn := 0  # that the offers are for
var _is_closed := false
var _random := RandomNumberGenerator.new()


func _init() -> void:
	pause_mode = PAUSE_MODE_PROCESS
	_random.randomize()
	for name in ["welcomed", "lost", "opened", "offered", "answered", "failed"]:
		_talk.connect(name, self, "_on_" + name)


# Connect now. Ends with `connected`. Every other request connects by itself.
func connect_server() -> void:
	_ask_alone(Request.new("connect"))


# A new game, in place of the one that this node plays. Ends with `opened`.
func open_game(its_seed := -1) -> void:
	_open(its_seed, {}, PoolByteArray())


# A new game that starts from a picture: the bytes of a PNG, JPEG or WebP file, and what happens in it ("gently wave"). Only if
# `welcome.capabilities` has "picture". Ends with `opened`, after a while; `seen` says what the server saw.
func open_from_picture(file_bytes: PoolByteArray, motion: String, its_seed := -1) -> void:
	if file_bytes.size() == 0 or file_bytes.size() > MAX_PICTURE_BYTES:
		var found := "the picture has %d bytes; expected 1 to %d" % [file_bytes.size(), MAX_PICTURE_BYTES]
		_report("bad_argument", found, "give the bytes of a PNG, JPEG or WebP file")
	else:
		_open(its_seed, {"motion": motion}, file_bytes)


# Go on with the game of this token. Ends with `opened`; if a turn is running there, its events come too.
func resume(its_token: String) -> void:
	if _may_ask(not is_busy()):
		_play_another(its_token)
		_ask(Request.new("resume"))


# Play a turn. While one runs this is refused, unless that one was cancelled: "say this instead" is cancel(), then say().
# turn_id: the same one twice is one turn; "": a new one. Ends with `done`.
func say(instruction: String, turn_id := "") -> void:
	if instruction.strip_edges() == "":
		_report("bad_argument", "the instruction is empty", "say what happens next")
	elif _may_ask(_talk.may_say()):
		offers = []
		var its_id := turn_id if turn_id != "" else _new_turn_id()
		_ask(Request.new("turn", {"instruction": instruction, "turn_id": its_id}))


# The events of a finished or running turn again, those after after_seq. Ends with `done`.
func replay(turn: int, after_seq := -1) -> void:
	_ask_alone(Request.new("replay", {}, turn, after_seq))


# Stop the running turn or export: it ends with the error `cancelled`. Nothing happens if none runs.
func cancel() -> void:
	_talk.cancel()


# Delete the turns after this one; 0 deletes all. Ends with `rewound`.
func rewind(turn: int) -> void:
	offers = []
	_ask_alone(Request.new("rewind", {"turn": turn}))


# A second game that shares the turns up to this one. its_seed: -1, this game's. Ends with `branched`; this node stays with its game.
func branch(turn: int, its_seed := -1) -> void:
	_ask_alone(Request.new("branch", {"turn": turn, "seed": its_seed} if its_seed >= 0 else {"turn": turn}))


# Up to 100 turns before this one; 0: the newest. Ends with `listed`.
func list_turns(before := 0) -> void:
	_ask_alone(Request.new("list", {"before": before} if before > 0 else {}))


# Write the game to a folder on the server's machine. Ends with `exported`.
func export_game() -> void:
	_ask_alone(Request.new("export"))


# The server's state and load. May be asked for at any time. Ends with `status`.
func ask_status() -> void:
	if _may_ask(true):
		_talk.timeout_s = timeout_s
		_talk.ask_status(_numeric_host(), port)


# End the game for good. Ends with `closed`. To go on later keep the token instead.
func close_game() -> void:
	_ask_alone(Request.new("close"))


# Disconnect for good; requests in progress end with the error `closed`. The game stays on the server.
func close() -> void:
	_is_closed = true
	_talk.close("closed", "the session is closed", "make another node; the game goes on with resume(token)")


func is_busy() -> bool:
	return _talk.is_busy()


# Pictures that wait for their time.
func pictures_waiting() -> int:
	return _clip.waiting()


func get_offers() -> Array:
	return offers if _offers_turn == turns + 1 else []


# What is wrong with host and port; "" if nothing.
func address_fault() -> String:
	if _numeric_host().is_valid_ip_address() and port >= 1 and port <= 65534:
		return ""
	return "tcp://%s:%d is not the address of a server" % [host, port]


func _open(its_seed: int, fields: Dictionary, file_bytes: PoolByteArray) -> void:
	if not _may_ask(not is_busy()):
		return
	_play_another("")
	_talk.new_game = fields
	_talk.picture = file_bytes
	if its_seed >= 0:
		_talk.new_game["seed"] = its_seed
	var request := Request.new("open")
	request.slow = file_bytes.size() > 0  # it waits in the server's queue, like a turn
	_ask(request)


# The game so far stays this node's, until the other one is open.
func _play_another(its_token: String) -> void:
	_talk.token_before = token
	token = its_token
	seen = {}
	offers = []


func _ask_alone(request: Request) -> void:
	if _may_ask(not is_busy()):
		_ask(request)


func _may_ask(is_free: bool) -> bool:
	if _is_closed:
		_report("closed", "the session is closed", "make another node; the game goes on with resume(token)")
	elif address_fault() != "":
		_report("bad_argument", address_fault(), "give host and port as of tcp://127.0.0.1:5570; a host is localhost or numbers")
	elif not is_free:
		_report("turn_running", "a request is in progress", "wait for its end, or call cancel() first")
	else:
		return true
	return false


func _ask(request: Request) -> void:
	_talk.timeout_s = timeout_s
	_talk.token = token
	if token == "" and request.type != "open":
		_talk.new_game = {"seed": game_seed} if game_seed >= 0 else {}
		_talk.picture = PoolByteArray()
	_talk.ask(request, _numeric_host(), port)


func _numeric_host() -> String:
	return "127.0.0.1" if host == "localhost" else host


func _process(_delta: float) -> void:
	var now := OS.get_ticks_msec()
	_talk.advance(now)
	_clip.show(now)


func _exit_tree() -> void:
	_talk.leave()


func _on_welcomed(fields: Dictionary) -> void:
	welcome = fields
	_clip.fps = max(1.0, fields.get("bundle", {}).get("fps", 8.0))
	emit_signal("connected", fields)


func _on_lost(why: String) -> void:
	offers = []
	emit_signal("disconnected", why)


func _on_opened(fields: Dictionary) -> void:
	token = _talk.token
	_talk.picture = PoolByteArray()
	_talk.token_before = ""
	_learn(fields)
	seen = fields.get("understood", seen)
	emit_signal("opened", token)


func _on_offered(turn: int, instructions: Array) -> void:
	_offers_turn = turn
	offers = instructions
	emit_signal("offered", instructions)


func _on_answered(request: Request, message: Dictionary) -> void:
	var fields: Dictionary = message.fields
	match message.type:
		"accepted", "understood", "state", "exported", "status":
			emit_signal(message.type, fields)
		"progress":
			emit_signal("progress", fields.get("step", 0), fields.get("steps", 1), fields.get("seconds_left", 0.0))
		"frame":
			emit_signal("frame", fields.index, fields.count, _clip.add(fields, message.buffer))
		"done", "rewound":
			_learn(fields)
			emit_signal(message.type, fields)
		"opened":
			emit_signal("branched", fields)
		"listed":
			emit_signal("listed", fields.get("turns", []), fields.get("more", false))
		"closed":
			emit_signal("closed")


func _on_failed(code: String, text: String, what_to_do: String) -> void:
	token = _talk.token
	turns = _talk.turns
	_report(code, text, what_to_do)


func _learn(fields: Dictionary) -> void:
	turns = _talk.turns
	character = fields.get("character", character)


func _report(code: String, text: String, what_to_do: String) -> void:
	if code != "cancelled" and get_signal_connection_list("error").empty():
		push_warning("AnimeGamer: %s; %s" % [text, what_to_do])  # else nobody would know
	call_deferred("emit_signal", "error", code, text, what_to_do)


func _new_turn_id() -> String:
	return "godot-%08x%08x%08x" % [_random.randi(), _random.randi(), _random.randi()]
