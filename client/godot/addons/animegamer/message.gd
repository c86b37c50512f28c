extends Reference
# Messages of the protocol, to and from the frames of ZeroMQ: PROTOCOL.md, "A message".

const Msgpack := preload("msgpack.gd")
const MAGIC := [0x41, 0x47, 0x52, 0x54, 1]  # AGRT, major version 1
const MAX_HEADER_BYTES := 262144
const MAX_BUFFER_BYTES := 67108864
const HEADER_KEYS := ["id", "parent", "session", "turn", "seq"]


# The frames of a request. `header`: those of HEADER_KEYS that it has. `buffer`: empty, none.
static func encode(type: String, header: Dictionary, fields: Dictionary, buffer := PoolByteArray()) -> Array:
	var map := {"type": type}
	for key in HEADER_KEYS:
		if header.has(key):
			map[key] = header[key]
	map["fields"] = fields
	var frames := [PoolByteArray(MAGIC), Msgpack.new().encode(map)]
	return frames + [buffer] if buffer.size() > 0 else frames


# A message from a server: type, fields, those of HEADER_KEYS that it has, and buffer (of frame and clip).
# Of bytes that are none: {"refused": code, "text": why}.
static func decode(frames: Array) -> Dictionary:
	if frames.size() < 2:
		return _refuse("protocol", "a message of %d frames, expected 2 or more" % frames.size())
	var magic: PoolByteArray = frames[0]
	if magic.size() != 5 or Array(magic).slice(0, 3) != MAGIC.slice(0, 3):
		return _refuse("protocol", "what arrived is not a message of this protocol")
	if magic[4] != 1:
		return _refuse("version", "the server speaks version %d, this client speaks 1" % magic[4])
	if frames[1].size() > MAX_HEADER_BYTES or frames.size() > 3:
		return _refuse("too_large", "a header of %d bytes, %d buffers" % [frames[1].size(), frames.size() - 2])
	if frames.size() == 3 and frames[2].size() > MAX_BUFFER_BYTES:
		return _refuse("too_large", "a buffer of %d bytes" % frames[2].size())
	var msgpack := Msgpack.new()
	var map = msgpack.decode(frames[1])
	if msgpack.error != "":
		return _refuse("protocol", "the header: %s" % msgpack.error)
	if typeof(map) != TYPE_DICTIONARY:
		return _refuse("protocol", "the header is no map")
	if not map.has("type"):
		return _refuse("missing_field", "the header has no type")
	var message := {"type": map["type"], "fields": map.get("fields", {})}
	if typeof(message.fields) != TYPE_DICTIONARY:
		return _refuse("bad_field", "fields is no map")
	for key in ["type"] + HEADER_KEYS:
		if not map.has(key):
			continue
		if not (_is_count(map[key], 1 if key == "turn" else 0) if key in ["turn", "seq"] else _is_name(map[key])):
			return _refuse("bad_field", "%s in the header has the wrong kind or size" % key)
		message[key] = map[key]
	if frames.size() == 3:
		message["buffer"] = frames[2]
	return _checked_frame(message) if message.type == "frame" else message


static func _checked_frame(message: Dictionary) -> Dictionary:
	var fields: Dictionary = message.fields
	if not message.has("seq"):
		return _refuse("missing_field", "a frame has no seq")
	for key in ["index", "count", "width", "height", "stride", "pixel_format", "codec"]:
		if not fields.has(key):
			return _refuse("missing_field", "a frame has no %s" % key)
	for key in ["index", "count", "width", "height", "stride"]:
		if not _is_count(fields[key], 1 if key in ["width", "height"] else 0) or fields[key] > 2147483647:
			return _refuse("bad_field", "%s of a frame is %s" % [key, fields[key]])
	if fields.codec != "raw":
		return message
	var pixel := 3 if str(fields.pixel_format) == "rgb24" else 4
	if fields.width > 65535 or fields.height > 65535 or fields.stride < fields.width * pixel:
		return _refuse("bad_field", "a frame of %d x %d with rows of %d bytes" % [fields.width, fields.height, fields.stride])
	var found: int = message.buffer.size() if message.has("buffer") else 0
	if found != fields.stride * fields.height:
		return _refuse("bad_field", "a frame's buffer has %d bytes, expected %d" % [found, fields.stride * fields.height])
	return message


static func _refuse(code: String, text: String) -> Dictionary:
	return {"refused": code, "text": text}


static func _is_name(value) -> bool:
	return typeof(value) == TYPE_STRING and value.length() >= 1 and value.length() <= 64


static func _is_count(value, least: int) -> bool:
	return typeof(value) == TYPE_INT and value >= least
