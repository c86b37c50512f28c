extends VBoxContainer
# Plays three turns, then what is typed. With ANIMEGAMER_SCREENSHOT=FILE.png it saves its window after the third and quits;
# ANIMEGAMER_PORT is the server's port, if that is not 5570.

const TURNS := [
	"Mirel waves gently in the meadow.",
	"Mirel walks smoothly on the beach by day.",
	"Bixo jumps quickly in the city at night.",
]

onready var session: AnimeGamerSession = $Session


func _ready() -> void:
	if OS.get_environment("ANIMEGAMER_PORT") != "":
		session.port = int(OS.get_environment("ANIMEGAMER_PORT"))
	$Picture.texture = session.texture
	$Values.text = "waiting for the server, %d s at most" % session.timeout_s
	session.connect("state", self, "_on_state")
	session.connect("progress", self, "_on_progress")
	session.connect("error", self, "_on_error")
	session.connect("done", self, "_on_done")
	$Say.connect("text_entered", self, "_say")
	for turn in TURNS:
		_say(turn)
		yield(session, "done")
	if OS.get_environment("ANIMEGAMER_SCREENSHOT") != "":
		while session.pictures_waiting() > 0:
			yield(get_tree(), "idle_frame")
		_save_window(OS.get_environment("ANIMEGAMER_SCREENSHOT"))


func _say(instruction: String) -> void:
	$Said.text = instruction
	$Say.text = ""
	session.say(instruction)


func _on_state(fields: Dictionary) -> void:
	var shown: Dictionary = fields.shown
	$Values.text = "stamina %d, social %d, entertainment %d" % [shown.stamina, shown.social, shown.entertainment]


func _on_progress(step: int, steps: int, _seconds_left: float) -> void:
	$Progress.value = float(step) / steps


func _on_done(fields: Dictionary) -> void:
	print("turn %d took %.2f s" % [fields.turns, fields.seconds.total])


func _on_error(_code: String, text: String, what_to_do: String) -> void:
	$Said.text = "%s; %s" % [text, what_to_do]
	print("error: ", $Said.text)
	if OS.get_environment("ANIMEGAMER_SCREENSHOT") != "":
		OS.exit_code = 1
		get_tree().quit()


func _save_window(file: String) -> void:
	yield(get_tree(), "idle_frame")
	yield(VisualServer, "frame_post_draw")
	var image := get_viewport().get_texture().get_data()
	image.flip_y()
	OS.exit_code = image.save_png(file)
	get_tree().quit()
