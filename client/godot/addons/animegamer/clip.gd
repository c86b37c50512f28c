extends Reference
# Pictures that came in a burst, shown one after the other at the clip's own rate in one texture.

var fps := 8.0

var _texture: ImageTexture
var _images := []
var _newest := 0  # how many of them are of the newest clip
var _last_index := -1
var _due_msec := 0.0  # of the next picture
var _idle := true  # the last picture has had its time


func _init(texture: ImageTexture) -> void:
	_texture = texture


# The picture of a raw rgba32 frame as an Image, which is shown when its time comes.
func add(fields: Dictionary, bytes: PoolByteArray) -> Image:
	var row: int = fields.width * 4
	if fields.stride > row:
		var packed := PoolByteArray()
		for y in fields.height:
			packed.append_array(bytes.subarray(y * fields.stride, y * fields.stride + row - 1))
		bytes = packed
	var image := Image.new()
	image.create_from_data(fields.width, fields.height, false, Image.FORMAT_RGBA8, bytes)
	if fields.index <= _last_index:
		while _images.size() > _newest:
			_images.pop_front()  # the player is two clips behind: go on with the next
		_newest = 0
	_last_index = fields.index
	_images.append(image)
	_newest += 1
	return image


func waiting() -> int:
	return _images.size()


# Call in every tick: puts the picture that is due into the texture. A slow game skips pictures, and loses no time.
func show(now_msec: int) -> void:
	var period := 1000.0 / fps
	if now_msec < _due_msec:
		return
	if _images.empty():
		_idle = true
		return
	if _idle:
		_due_msec = now_msec
		_idle = false
	while _images.size() > 1 and now_msec >= _due_msec + period:
		_images.pop_front()
		_due_msec += period
	var image: Image = _images.pop_front()
	_newest = int(min(_newest, _images.size()))
	_due_msec += period
	if _texture.get_size() == image.get_size():
		_texture.set_data(image)
	else:
		_texture.create_from_image(image, Texture.FLAG_FILTER)
