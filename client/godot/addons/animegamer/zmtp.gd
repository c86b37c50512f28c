extends Reference
# One connection of ZeroMQ: a DEALER with NULL security (ZMTP 3.1) over Godot's TCP. It never waits.
#
# It connects again by itself, but what was sent before is not sent again: `connections` counts, so that its user knows.

enum State { IDLE, CONNECTING, GREETING, READY, FOREIGN }

const PIECE := 131072  # bytes read at once
const MAX_FRAMES := 3
const MAX_FRAME_BYTES := 67108864
const RECONNECT_MSEC := 200
const HANDSHAKE_MSEC := 5000
const NO_GAME_SERVER := "a program there accepts connections, but does not answer as a game server does"
const SIGNATURE := [0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f]

var state: int = State.IDLE
var connections := 0  # how often it became READY
var why := ""  # why it is not READY
var heard := false  # bytes have come since its user last set this to false

var _tcp: StreamPeerTCP
var _host := ""
var _port := 0
var _since_msec := 0
var _out := PoolByteArray()
var _wanted := 0  # bytes of the part that is being read
var _have := PoolByteArray()  # what of it is there
var _part := ""  # greeting, head, length, body
var _flags := 0
var _length := 0  # its first byte
var _frames := []


func open(host: String, port: int) -> void:
	_host = host
	_port = port
	_connect()


func close() -> void:
	if _tcp != null:
		_tcp.disconnect_from_host()
	_tcp = null
	state = State.IDLE
	why = "closed"


# Queue a message. False: there is no connection, and it was not sent.
func send(frames: Array) -> bool:
	if state != State.READY:
		return false
	for i in frames.size():
		_put_frame(1 if i + 1 < frames.size() else 0, frames[i])
	_flush()
	return true


# Connect, greet and send as far as that goes now. Call it in every tick, then `next`.
func poll() -> void:
	var now := OS.get_ticks_msec()
	if state == State.IDLE or state == State.FOREIGN:
		return
	if _tcp == null:
		if now - _since_msec >= RECONNECT_MSEC:
			_connect()
		return
	match _tcp.get_status():
		StreamPeerTCP.STATUS_CONNECTING:
			return
		StreamPeerTCP.STATUS_CONNECTED:
			if state == State.CONNECTING:
				_greet()
		_:
			_drop("nothing listens there" if state == State.CONNECTING else _lost_text())
			return
	if state == State.GREETING and now - _since_msec > HANDSHAKE_MSEC:
		_drop(NO_GAME_SERVER)
		return
	_flush()


# The next message that has come, a list of frames (PoolByteArray). Empty: none is whole before OS.get_ticks_usec() is end_usec.
func next(end_usec: int) -> Array:
	var messages := []
	while state in [State.GREETING, State.READY] and OS.get_ticks_usec() < end_usec and _fill() and _take(messages):
		if not messages.empty():
			return messages[0]
	return []


# Give the connection up, and make another.
func drop(reason: String) -> void:
	if state == State.READY or state == State.GREETING:
		_drop(reason)


func _connect() -> void:
	_since_msec = OS.get_ticks_msec()
	state = State.CONNECTING
	_tcp = StreamPeerTCP.new()
	if _tcp.connect_to_host(_host, _port) != OK:
		_drop("no connection can be made")


func _drop(reason: String) -> void:
	why = reason
	_tcp.disconnect_from_host()
	_tcp = null
	_since_msec = OS.get_ticks_msec()
	state = State.CONNECTING


func _lost_text() -> String:
	if state == State.READY:
		return "the connection was lost"
	return "a program there ends the connection before the ZeroMQ handshake; it may ask for keys, which this client does not have"


func _greet() -> void:
	state = State.GREETING
	_since_msec = OS.get_ticks_msec()
	_tcp.set_no_delay(true)
	_out = PoolByteArray(SIGNATURE + [3, 1] + Array("NULL".to_ascii()))
	var filler := PoolByteArray()
	filler.resize(48)
	for i in filler.size():
		filler[i] = 0
	_out.append_array(filler)
	var ready := PoolByteArray([5] + Array("READY".to_ascii()) + [11] + Array("Socket-Type".to_ascii()) + [0, 0, 0, 6])
	ready.append_array("DEALER".to_ascii())
	ready.append_array(PoolByteArray([8] + Array("Identity".to_ascii()) + [0, 0, 0, 0]))
	_put_frame(4, ready)
	_frames = []
	_expect("greeting", 64)


func _put_frame(flags: int, data: PoolByteArray) -> void:
	var head := StreamPeerBuffer.new()
	head.big_endian = true
	if data.size() > 255:
		head.put_u8(flags | 2)
		head.put_64(data.size())
	else:
		head.put_u8(flags)
		head.put_u8(data.size())
	_out.append_array(head.data_array)
	_out.append_array(data)


func _flush() -> void:
	while _tcp != null and _out.size() > 0:
		var sent: Array = _tcp.put_partial_data(_out)
		if sent[0] != OK:
			_drop(_lost_text())
		elif sent[1] == 0:
			return
		elif sent[1] == _out.size():
			_out = PoolByteArray()
		else:
			_out = _out.subarray(sent[1], -1)


func _expect(part: String, bytes: int) -> void:
	_part = part
	_wanted = bytes
	_have = PoolByteArray()


# True: the part is whole.
func _fill() -> bool:
	var missing := _wanted - _have.size()
	if missing == 0:
		return true
	var there := _tcp.get_available_bytes()
	if there <= 0:
		return false
	var got: Array = _tcp.get_partial_data(int(min(min(missing, there), PIECE)))
	if got[0] != OK:
		_drop(_lost_text())
		return false
	heard = true
	_have.append_array(got[1])
	return true


# Use the part if it is whole. False: the connection is no more.
func _take(messages: Array) -> bool:
	if _part == "greeting" and not _looks_right():
		return false
	if _have.size() < _wanted:
		return true
	match _part:
		"greeting":
			_expect("head", 2)
		"head":
			_flags = _have[0]
			_length = _have[1]
			if _flags > 6 or (_flags & 4 and _flags & 1) or _frames.size() >= MAX_FRAMES:
				return _foreign()
			if _flags & 2:
				_expect("length", 7)
			else:
				_expect("body", _length)
		"length":
			for byte in _have:
				_length = _length << 8 | byte
			if _length < 0 or _length > MAX_FRAME_BYTES:
				return _foreign()
			_expect("body", _length)
		"body":
			var body := _have
			var flags := _flags
			_expect("head", 2)
			return _take_command(body) if flags & 4 else _take_frame(body, flags, messages)
	return true


func _looks_right() -> bool:
	for i in min(_have.size(), 11):
		if (i == 0 and _have[i] != 0xff) or (i == 9 and _have[i] != 0x7f) or (i == 10 and _have[i] < 3):
			return _foreign()
	if _have.size() == 64 and Array(_have).slice(12, 16) != Array("NULL".to_ascii()) + [0]:
		return _foreign("the server asks for keys, which this client does not have")
	return true


func _take_frame(body: PoolByteArray, flags: int, messages: Array) -> bool:
	if state != State.READY:
		return _foreign()
	_frames.append(body)
	if not flags & 1:
		messages.append(_frames)
		_frames = []
	return true


func _take_command(body: PoolByteArray) -> bool:
	var name := body.subarray(1, body[0]).get_string_from_ascii() if body.size() > 1 and body[0] < body.size() else ""
	if name == "READY" and state == State.GREETING:
		state = State.READY
		connections += 1
		why = ""
	elif name == "PING" and body.size() >= 7:
		var pong := PoolByteArray([4] + Array("PONG".to_ascii()))
		if body.size() > 7:
			pong.append_array(body.subarray(7, -1))
		_put_frame(4, pong)
		_flush()
	elif name == "ERROR" or name == "":
		return _foreign()
	return true


# What answers is no game server: it is not asked again.
func _foreign(reason: String = "") -> bool:
	var start := _have.get_string_from_ascii() if _part == "greeting" else ""
	_drop(reason if reason != "" else "another program answers there, not a game server: %s" % start.strip_edges())
	state = State.FOREIGN
	return false
