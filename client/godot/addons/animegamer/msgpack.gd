extends Reference
# The part of msgpack that the protocol uses: nil, bool, int, float, text, bytes, list and map with text keys.
#
# Lengths are checked against what is there before anything is made. A decoder object is for one decode at a time.

const MAX_DEPTH := 32
const MAX_ITEMS := 1024  # of a list or map in a server's message; see PROTOCOL.md, Limits

var error := ""  # why the last decode failed; "" after success
var _in := StreamPeerBuffer.new()


func _init() -> void:
	_in.big_endian = true


# The bytes of a value, in the shortest form; floats have 64 bits.
func encode(value) -> PoolByteArray:
	var out := StreamPeerBuffer.new()
	out.big_endian = true
	_write(out, value)
	return out.data_array


# The value of bytes that hold exactly one; null and `error` if they do not.
func decode(bytes: PoolByteArray):
	error = ""
	_in.data_array = bytes
	_in.seek(0)
	var value = _read(0)
	if error == "" and _in.get_available_bytes() > 0:
		_fail("%d bytes too many" % _in.get_available_bytes())
	return value if error == "" else null


func _write(out: StreamPeerBuffer, value) -> void:
	match typeof(value):
		TYPE_NIL:
			out.put_u8(0xc0)
		TYPE_BOOL:
			out.put_u8(0xc3 if value else 0xc2)
		TYPE_INT:
			_write_int(out, value)
		TYPE_REAL:
			out.put_u8(0xcb)
			out.put_double(value)
		TYPE_STRING:
			var text: PoolByteArray = value.to_utf8()
			_write_length(out, text.size(), 0xa0, 32, [0xd9, 0xda, 0xdb])
			out.put_data(text)
		TYPE_RAW_ARRAY:
			_write_length(out, value.size(), 0, 0, [0xc4, 0xc5, 0xc6])
			out.put_data(value)
		TYPE_ARRAY:
			_write_length(out, value.size(), 0x90, 16, [0, 0xdc, 0xdd])
			for item in value:
				_write(out, item)
		TYPE_DICTIONARY:
			_write_length(out, value.size(), 0x80, 16, [0, 0xde, 0xdf])
			for key in value:
				_write(out, key)
				_write(out, value[key])
		_:
			push_error("msgpack: a value of this kind cannot be sent: %s" % [value])
			out.put_u8(0xc0)


func _write_int(out: StreamPeerBuffer, value: int) -> void:
	if value >= 0:
		if value < 0x80:
			out.put_u8(value)
		elif value <= 0xff:
			out.put_u8(0xcc)
			out.put_u8(value)
		elif value <= 0xffff:
			out.put_u8(0xcd)
			out.put_u16(value)
		elif value <= 0xffffffff:
			out.put_u8(0xce)
			out.put_u32(value)
		else:
			out.put_u8(0xcf)
			out.put_64(value)
	elif value >= -32:
		out.put_8(value)
	elif value >= -0x80:
		out.put_u8(0xd0)
		out.put_8(value)
	elif value >= -0x8000:
		out.put_u8(0xd1)
		out.put_16(value)
	elif value >= -0x80000000:
		out.put_u8(0xd2)
		out.put_32(value)
	else:
		out.put_u8(0xd3)
		out.put_64(value)


# `kinds`: first bytes of the forms with a length of 8, 16 and 32 bits; 0: there is none.
func _write_length(out: StreamPeerBuffer, length: int, short_kind: int, short_end: int, kinds: Array) -> void:
	if length < short_end:
		out.put_u8(short_kind + length)
	elif length <= 0xff and kinds[0] != 0:
		out.put_u8(kinds[0])
		out.put_u8(length)
	elif length <= 0xffff:
		out.put_u8(kinds[1])
		out.put_u16(length)
	else:
		out.put_u8(kinds[2])
		out.put_u32(length)


func _fail(text: String):
	if error == "":
		error = text
	return null


func _has(count: int) -> bool:
	if error == "" and count > _in.get_available_bytes():
		_fail("cut short: %d bytes are declared, %d are there" % [count, _in.get_available_bytes()])
	return error == ""


func _read(depth: int):
	if depth > MAX_DEPTH:
		return _fail("nested more than %d deep" % MAX_DEPTH)
	if _in.get_available_bytes() == 0:
		return _fail("cut short")
	var kind := _in.get_u8()
	if kind < 0x80:
		return kind
	if kind >= 0xa0 and kind < 0xc0:
		return _read_text(kind & 0x1f)
	if kind < 0x90:
		return _read_map(kind & 0x0f, depth)
	if kind < 0xa0:
		return _read_list(kind & 0x0f, depth)
	if kind >= 0xe0:
		return kind - 0x100
	match kind:
		0xc0:
			return null
		0xc2:
			return false
		0xc3:
			return true
		0xc4, 0xc5, 0xc6:
			return _read_bytes(_read_unsigned(1 << (kind - 0xc4)))
		0xca:
			return _finite(_in.get_float()) if _has(4) else null
		0xcb:
			return _finite(_in.get_double()) if _has(8) else null
		0xcc, 0xcd, 0xce, 0xcf:
			return _read_unsigned(1 << (kind - 0xcc))
		0xd0:
			return _in.get_8() if _has(1) else null
		0xd1:
			return _in.get_16() if _has(2) else null
		0xd2:
			return _in.get_32() if _has(4) else null
		0xd3:
			return _in.get_64() if _has(8) else null
		0xd9, 0xda, 0xdb:
			return _read_text(_read_unsigned(1 << (kind - 0xd9)))
		0xdc, 0xdd:
			return _read_list(_read_unsigned(2 << (kind - 0xdc)), depth)
		0xde, 0xdf:
			return _read_map(_read_unsigned(2 << (kind - 0xde)), depth)
	return _fail("kind %x is not used" % kind)


func _finite(value: float):
	return _fail("a float that is no number") if is_nan(value) or is_inf(value) else value


# -1 on failure.
func _read_unsigned(size: int) -> int:
	if not _has(size):
		return -1
	match size:
		1:
			return _in.get_u8()
		2:
			return _in.get_u16()
		4:
			return _in.get_u32()
	var value := _in.get_64()
	if value < 0:
		_fail("an integer of more than 63 bits")
	return value


func _read_bytes(length: int) -> PoolByteArray:
	if length <= 0 or not _has(length):
		return PoolByteArray()
	return _in.get_data(length)[1]


func _read_text(length: int) -> String:
	if length <= 0 or not _has(length):
		return ""
	var text := _in.get_string(length)
	if text.length() == length and text.to_utf8().size() == length:
		return text  # ASCII, as nearly all of it: the loop below is slow
	_in.seek(_in.get_position() - length)
	var bytes := _read_bytes(length)
	if not _is_utf8(bytes):
		_fail("text that is not UTF-8")
		return ""
	return bytes.get_string_from_utf8()


func _is_utf8(bytes: PoolByteArray) -> bool:
	var more := 0  # bytes of the character that are still to come
	var point := 0
	var least := 0
	for byte in bytes:
		if more > 0:
			if byte & 0xc0 != 0x80:
				return false
			point = point << 6 | byte & 0x3f
			more -= 1
			if more == 0 and (point < least or point > 0x10ffff or (point >= 0xd800 and point < 0xe000)):
				return false
		elif byte >= 0x80:
			more = 1 if byte & 0xe0 == 0xc0 else 2 if byte & 0xf0 == 0xe0 else 3 if byte & 0xf8 == 0xf0 else 0
			if more == 0:
				return false
			least = [0, 0x80, 0x800, 0x10000][more]
			point = byte & (0x3f >> more)
	return more == 0


func _read_list(count: int, depth: int) -> Array:
	var list := []
	if count > MAX_ITEMS:
		_fail("a list of %d items, at most %d are allowed" % [count, MAX_ITEMS])
	for _i in range(count if error == "" else 0):
		list.append(_read(depth + 1))
		if error != "":
			break
	return list


func _read_map(count: int, depth: int) -> Dictionary:
	var map := {}
	if count > MAX_ITEMS:
		_fail("a map of %d items, at most %d are allowed" % [count, MAX_ITEMS])
	for _i in range(count if error == "" else 0):
		var key = _read(depth + 1)
		if error == "" and typeof(key) != TYPE_STRING:
			_fail("a key that is no text")
		elif error == "" and map.has(key):
			_fail("the key %s appears twice" % key)
		if error != "":
			break
		map[key] = _read(depth + 1)
	return map
