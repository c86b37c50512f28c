extends Node
# The driver of the conformance suite: commands come over TCP from conform.py, each is answered by a line. What they mean is in
# client/conformance/README.md.

const Session := preload("res://addons/animegamer/session.gd")
const SIGNALS := {
	"connected": 1, "opened": 1, "rewound": 1, "branched": 1, "listed": 2, "exported": 1, "status": 1, "closed": 0, "error": 3
}

var session: AnimeGamerSession
var commands := StreamPeerTCP.new()
var line := ""  # what has come of the next command
var is_answering := false
var address := []
var token := ""
var events := []  # [name, arguments] of the signals since the last request
var closes_at_progress := false

var seqs := []  # of the turn that was begun: numbers of its events, its pictures, how it ended
var pictures := 0
var hashed := 0
var replayed := 0
var end := ""
var end_usec := 0
var server_s := 0.0  # what the turn took there
var understood := ""  # what its instruction was taken to mean
var hashes := true
var tells_frames := false


func _ready() -> void:
	Engine.target_fps = 60
	commands.connect_to_host("127.0.0.1", int(OS.get_environment("ANIMEGAMER_DRIVER_PORT")))


func _process(_delta: float) -> void:
	if is_answering or commands.get_status() == StreamPeerTCP.STATUS_CONNECTING:
		return
	if commands.get_status() != StreamPeerTCP.STATUS_CONNECTED:
		get_tree().quit()
		return
	if commands.get_available_bytes() > 0:
		line += commands.get_utf8_string(commands.get_available_bytes())
	if line.ends_with("\n"):
		var words := line.trim_suffix("\n").split(" ", true, 1)
		line = ""
		is_answering = true
		var said: String = yield(answer(words[0], words[1] if words.size() > 1 else ""), "completed")
		is_answering = false
		commands.put_data((said.replace("\n", " ") + "\n").to_utf8())


func answer(verb: String, rest: String) -> String:
	yield(get_tree(), "idle_frame")
	var numbers := rest.split(" ")
	if not session or not session.is_busy():
		events = []
	match verb:
		"new":
			address = [numbers[0].trim_prefix("tcp://").split(":")[0], int(numbers[0].split(":")[-1]), float(numbers[1])]
			renew()
			var fault := session.address_fault()
			return "ok" if fault == "" else "error bad_argument %s; as in tcp://127.0.0.1:5570" % fault
		"connect":
			session.connect_server()
			yield(ended("connected"), "completed")
			return error_or("ok %s %s" % [session.welcome.get("bundle", {}).get("name"), session.welcome.get("state")])
		"open":
			session.open_game(int(rest))
			yield(ended("opened"), "completed")
			return opened()
		"resume":
			renew()
			session.resume(rest if rest != "" else token)
			yield(ended("opened"), "completed")
			return opened()
		"open-picture":
			var file := File.new()
			file.open(numbers[1], File.READ)
			session.open_from_picture(file.get_buffer(file.get_len()), rest.split(" ", true, 2)[2], int(numbers[0]))
			yield(ended("opened"), "completed")
			return "%s %s" % [opened(), session.seen.get("text", "")]
		"words":
			return "ok" + words_of(session.welcome.get("bundle", {}))
		"understood":
			return ("ok %s" % understood).strip_edges()
		"offers":
			session.list_turns()  # what the server has sent before its answer has been read then
			yield(ended("listed"), "completed")
			return "ok %d %s" % [session.offers.size(), session.offers[0] if not session.offers.empty() else ""]
		"turn", "begin":
			var was_busy := session.is_busy()
			if not was_busy:
				begin_turn()
			session.say(rest.split(" ", true, 1)[1], numbers[0])
			while end == "" and (verb == "turn" or seqs.empty()) and not (was_busy and has("error")):
				yield(get_tree(), "idle_frame")
			return error_or("") if was_busy else turn_end() if end != "" else "ok"
		"replay":
			begin_turn()
			session.replay(int(numbers[0]), int(numbers[1]))
			continue
		"rest", "replay":
			while end == "":
				yield(get_tree(), "idle_frame")
			return turn_end()
		"cancel":
			var running := session.is_busy()
			session.cancel()
			return "ok %d" % int(running)
		"rewind":
			session.rewind(int(rest))
			yield(ended("rewound"), "completed")
			return error_or("ok %d" % session.turns)
		"branch":
			session.branch(int(rest))
			yield(ended("branched"), "completed")
			if has("error"):
				return error_or("")
			session.resume(events[-1][1][0].token)
			yield(ended("opened"), "completed")
			return opened()
		"list":
			session.list_turns()
			yield(ended("listed"), "completed")
			var list: Array = events[-1][1][0] if has("listed") else []
			return error_or("ok %d %s" % [list.size(), list[-1].instruction if not list.empty() else ""])
		"export", "export-close":
			closes_at_progress = verb == "export-close"
			session.export_game()
			yield(ended("exported"), "completed")
			return error_or("") if has("error") else "ok %d %s" % [events[-1][1][0].turns, events[-1][1][0].folder]
		"status", "ping":  # the addon has no ping of its own: asking for the status is the same round trip
			session.ask_status()
			yield(ended("status"), "completed")
			return error_or("") if has("error") else "ok %s" % events[-1][1][0].state
		"end":
			session.close_game()
			yield(ended("closed"), "completed")
			return error_or("ok")
		"close":
			session.close()
			return "ok"
		"measure-turns", "measure-loop", "measure-frames":
			hashes = false
			Engine.target_fps = 1000 if verb == "measure-frames" else 60
			var measured: Dictionary = yield(measure(verb, int(numbers[0]), rest.split(" ", true, 1)[1]), "completed")
			hashes = true
			return end if measured.empty() else to_json(measured)
	return "error unknown %s" % verb


func renew() -> void:
	if session:
		session.close()
		session.queue_free()
	Engine.target_fps = 250
	session = Session.new()
	session.host = address[0]
	session.port = address[1]
	session.timeout_s = address[2]
	for name in SIGNALS:
		session.connect(name, self, "_on_%d" % SIGNALS[name], [session, name])
	session.connect("frame", self, "_on_frame")
	session._talk.connect("answered", self, "_on_answered")  # signals do not say an event's number
	add_child(session)
	events = []


func opened() -> String:
	token = session.token if not has("error") else token
	return error_or("ok %d" % session.turns)


func begin_turn() -> void:
	seqs = []
	pictures = 0
	hashed = 2166136261
	replayed = 0
	end = ""
	understood = ""


func words_of(bundle: Dictionary) -> String:
	var text := ""
	for name in ["people", "motions", "places", "hours", "clothes", "manners"]:
		if bundle.has(name):
			text += " " + PoolStringArray(bundle[name]).join(",")
	return text


# What benchmarks/clients asks for; empty after a turn that failed.
func measure(verb: String, count: int, text: String):
	var wall_s := []
	var in_server_s := []
	var ticks := 0
	var longest_usec := 0
	var longest_running_usec := 0
	var frames := -17 if verb == "measure-frames" else 0
	session.set_process(verb != "measure-loop")
	while (frames if verb == "measure-frames" else wall_s.size()) < count:
		begin_turn()
		tells_frames = verb == "measure-frames" and frames >= 0 and count <= 2000
		var since := OS.get_ticks_usec()
		session.say(text)
		while end == "":
			yield(get_tree(), "idle_frame")
			if verb == "measure-loop":
				var waited := waited_usec()
				var start := OS.get_ticks_usec()
				session._process(0.0)
				var took := OS.get_ticks_usec() - start
				longest_usec = int(max(longest_usec, took))
				longest_running_usec = int(max(longest_running_usec, took - (waited_usec() - waited)))
				ticks += 1
		if end != "done":
			break
		frames += pictures
		wall_s.append(1e-6 * (end_usec - since))
		in_server_s.append(server_s)
	tells_frames = false
	session.set_process(true)
	if end != "done":
		return {}
	match verb:
		"measure-turns":
			return {"wall_s": wall_s, "server_s": in_server_s}
		"measure-loop":
			return {"ticks": ticks, "longest_poll_s": 1e-6 * longest_usec, "longest_poll_running_s": 1e-6 * longest_running_usec}
	return {"frames": frames}


# How long this thread, ready to run, has waited for a processor so far. Linux.
func waited_usec() -> int:
	var file := File.new()
	return int(file.get_line().split(" ")[1]) / 1000 if file.open("/proc/self/schedstat", File.READ) == OK else 0


func has(name: String) -> bool:
	for event in events:
		if event[0] == name:
			return true
	return false


func ended(name: String) -> void:
	yield(get_tree(), "idle_frame")
	while not has(name) and not has("error"):
		yield(get_tree(), "idle_frame")


func error_or(fine: String) -> String:
	for event in events:
		if event[0] == "error":
			return error_line(event[1])
	return fine


func error_line(error: Array) -> String:
	return "error %s %s%s" % [error[0], error[1], "; " + error[2] if error[2] != "" else ""]


func _on_0(its_session, name) -> void:
	_on_signal(its_session, name, [])


func _on_1(a, its_session, name) -> void:
	_on_signal(its_session, name, [a])


func _on_2(a, b, its_session, name) -> void:
	_on_signal(its_session, name, [a, b])


func _on_3(a, b, c, its_session, name) -> void:
	_on_signal(its_session, name, [a, b, c])


func _on_signal(its_session, name: String, arguments: Array) -> void:
	if its_session != session:
		return  # of one that was closed
	events.append([name, arguments])
	if name == "error" and end == "" and not arguments[0] == "turn_running":
		end = error_line(arguments)


func _on_frame(_index: int, _count: int, image: Image) -> void:
	pictures += 1
	if tells_frames:
		commands.put_data("frame\n".to_utf8())
	if not hashes:
		return
	for byte in image.get_data():
		hashed = ((hashed ^ byte) * 16777619) & 0xffffffff


func _on_answered(request, message: Dictionary) -> void:
	if message.type == "progress" and closes_at_progress and not request.is_turn():
		closes_at_progress = false
		session.close()
	if message.type == "understood":
		understood = message.fields.text
	if not message.has("seq"):
		return
	seqs.append(message.seq)
	if message.type == "accepted":
		replayed = int(message.fields.replayed)
	elif message.type == "done":
		end = "done"
		end_usec = OS.get_ticks_usec()
		server_s = message.fields.seconds.queue + message.fields.seconds.total


# In a later tick than `done`: Godot calls the objects that a signal has in no order that is known.
func turn_end() -> String:
	if end != "done":
		return end
	var whole := true
	for i in range(1, seqs.size()):
		whole = whole and seqs[i] == seqs[i - 1] + 1
	var numbers := "%d-%d" % [seqs[0], seqs[-1]] if whole else PoolStringArray(seqs).join(",")
	return "done turns=%d seq=%s pictures=%d hash=%08x replayed=%d" % [session.turns, numbers, pictures, hashed, replayed]
