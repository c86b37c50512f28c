extends Node
# Plays the scenario named by ANIMEGAMER_SCENARIO for tests/client/test_godot.py. What it prints after "ag: " is its answer.

const Clip := preload("res://addons/animegamer/clip.gd")
const Message := preload("res://addons/animegamer/message.gd")
const Session := preload("res://addons/animegamer/session.gd")
const SIGNALS := {
	"connected": 1, "disconnected": 1, "opened": 1, "understood": 1, "state": 1, "progress": 3, "frame": 3, "done": 1,
	"rewound": 1, "closed": 0, "error": 3
}

var session: AnimeGamerSession
var events := []  # [name, arguments] of the session's signals, in order


func _ready() -> void:
	var played = call(OS.get_environment("ANIMEGAMER_SCENARIO"))
	if played is GDScriptFunctionState:
		yield(played, "completed")
	get_tree().quit()


func unheard() -> void:
	session = Session.new()
	add_child(session)
	session.say("")


func say_line(text: String) -> void:
	print("ag: ", text)


func expect(holds: bool, what: String) -> void:
	if not holds:
		say_line("failed: %s; events: %s" % [what, names()])
		OS.exit_code = 1
		get_tree().quit()


func new_session() -> void:
	session = Session.new()
	session.port = int(OS.get_environment("ANIMEGAMER_PORT"))
	session.timeout_s = float(OS.get_environment("ANIMEGAMER_TIMEOUT"))
	for name in SIGNALS:
		session.connect(name, self, "_on_%d" % SIGNALS[name], [name])
	add_child(session)


func _on_0(name) -> void:
	events.append([name, []])


func _on_1(a, name) -> void:
	events.append([name, [a]])


func _on_3(a, b, c, name) -> void:
	events.append([name, [a, b, c]])


func names() -> Array:
	var list := []
	for event in events:
		list.append(event[0])
	return list


# The first event since `events` was emptied that has one of these names.
func next(wanted: Array) -> Array:
	yield(get_tree(), "idle_frame")
	while true:
		for event in events:
			if event[0] in wanted:
				return event
		yield(get_tree(), "idle_frame")
	return []


func play_one(instruction: String) -> void:
	events = []
	session.say(instruction)
	var end = yield(next(["done", "error"]), "completed")
	expect(end[0] == "done", "%s ended with %s" % [instruction, end])
	expect(names().count("frame") == 17 and names().count("state") == 1, "a state and 17 frames")
	expect(names().find("state") < names().find("frame"), "the state before the first frame")


func vectors() -> void:
	var file := File.new()
	file.open(OS.get_environment("ANIMEGAMER_VECTORS"), File.READ)
	while not file.eof_reached():
		var line := file.get_line()
		if line == "":
			continue
		var frames := []
		for word in line.split(" "):
			frames.append(from_hex(word))
		if frames[0].size() == 0 and line == "-":
			frames = []
		var message := Message.decode(frames)
		if message.has("refused"):
			say_line("refused %s" % message.refused)
			continue
		var written: PoolByteArray = Message.encode(message.type, message, message.fields)[1]
		say_line("read %s" % written.hex_encode())


# HEX or HEX*TIMES; "." for no bytes.
func from_hex(word: String) -> PoolByteArray:
	var hex := word.split("*")[0].trim_prefix(".").trim_prefix("-")
	var piece := PoolByteArray()
	for i in range(0, hex.length(), 2):
		piece.append(("0x" + hex.substr(i, 2)).hex_to_int())
	var bytes := piece.size() * (int(word.split("*")[1]) if "*" in word else 1)
	while piece.size() < bytes:
		piece.append_array(PoolByteArray(piece))
	return piece.subarray(0, bytes - 1) if bytes > 0 else piece


func play() -> void:
	var clip := Clip.new(ImageTexture.new())
	for i in 3 * 17:
		clip.add({"index": i % 17, "width": 1, "height": 1, "stride": 4}, PoolByteArray([0, 0, 0, 255]))
	expect(clip.waiting() == 2 * 17, "two clips wait at most")

	new_session()
	yield(play_one("Mia waves."), "completed")
	while session.pictures_waiting() > 0:
		yield(get_tree(), "idle_frame")
	expect(session.texture.get_size() == session_size(), "the texture has the size of a frame")
	say_line("a turn")

	events = []
	session.say("Mia dances.")
	session.say("Mia sings.")
	var end = yield(next(["error"]), "completed")
	expect(end[1][0] == "turn_running", "a second turn is refused")
	yield(next(["progress"]), "completed")
	session.cancel()
	session.say("Mia sits down instead.")
	events = []
	end = yield(next(["error"]), "completed")
	expect(end[1][0] == "cancelled", "cancel ends the turn: %s" % [end])
	end = yield(next(["done"]), "completed")
	expect(session.turns == 2, "the other turn is played")
	say_line("say instead")

	events = []
	get_tree().paused = true
	session.rewind(1)
	yield(next(["rewound"]), "completed")
	expect(session.turns == 1, "rewound to turn 1")
	say_line("rewound while paused")
	get_tree().paused = false

	var token := session.token
	session.queue_free()
	new_session()
	events = []
	session.resume(token)
	yield(next(["opened"]), "completed")
	expect(session.turns == 1 and session.character.has("stamina"), "the game as it was")
	while session.is_busy():
		yield(get_tree(), "idle_frame")
	yield(play_one("Mia flies."), "completed")
	expect(session.turns == 2, "turn 2")
	say_line("resumed")

	session.close_game()
	yield(next(["closed"]), "completed")
	events = []
	session.resume(token)
	end = yield(next(["error"]), "completed")
	say_line("closed: %s" % end[1][0])


func session_size() -> Vector2:
	return Vector2(session.welcome.bundle.width, session.welcome.bundle.height)
