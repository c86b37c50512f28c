"""The ONNX parts of the tiny bundle, in ONNX's text form: a few operators each, with export's names and shapes.

VOCABULARY stands for the number of tokens. The denoiser's coefficients are used as in models/denoiser_step.py.
"""

from __future__ import annotations

_HEADER = '<ir_version: 9, opset_import: ["": 20]>'
PARTS = {
    # A token's number is its id, or half the sum of its earlier shot's row; they are the keys. The phase is a
    # hundredth of the sum of all keys; the shot is the sine of phase and numbers read, the logits are cosines.
    "predictor": f"""{_HEADER}
predictor (int64[1, tokens] ids, int64[1, tokens] history_index, bool[1, tokens, tokens] masks,
           float[history_tokens, 8] history_shots, int64[read_tokens] readout,
           float[1, 1, cached_tokens, 2] cache_keys, float[1, 1, cached_tokens, 2] cache_values)
       => (float[1, read_tokens, 8] shot, float[1, VOCABULARY] logits, float[1, 1, longer, 2] cache_next_keys,
           float[1, 1, longer, 2] cache_next_values)
<int64[1] zero = {{0}}, int64[1] last = {{-1}}, int64[4] as_keys = {{1, 1, -1, 1}}, int64[3] as_shot = {{1, -1, 1}},
 float[8] widths = {{0, 1, 2, 3, 4, 5, 6, 7}}, float[1] half = {{0.5}}, int64 start = {{0}},
 int64 end = {{VOCABULARY}}, int64 one = {{1}}, float[1] slow = {{0.01}}>
{{
    ids_float = Cast<to = 1>(ids)
    sums = ReduceSum<keepdims = 0>(history_shots, last)
    halves = Mul(sums, half)
    shot_rows = Max(history_index, zero)
    shown = Gather<axis = 0>(halves, shot_rows)
    injected = GreaterOrEqual(history_index, zero)
    numbers = Where(injected, shown, ids_float)
    column = Reshape(numbers, as_keys)
    pair = Concat<axis = 3>(column, column)
    cache_next_keys = Concat<axis = 2>(cache_keys, pair)
    cache_next_values = Concat<axis = 2>(cache_values, pair)
    total = ReduceSum<keepdims = 0>(cache_next_keys)
    phase = Mul(total, slow)
    read = Gather<axis = 1>(numbers, readout)
    read_column = Reshape(read, as_shot)
    angles = Add(read_column, widths)
    turned = Add(angles, phase)
    shot = Sin(turned)
    choices = Range(start, end, one)
    choices_float = Cast<to = 1>(choices)
    waves = Mul(choices_float, phase)
    cosines = Cos(waves)
    logits = Unsqueeze(cosines, zero)
}}""",
    # v of row r is (r + 1) * tanh(latent + mean(shot)) / 4 + motion_scope / 100; then the arithmetic of a step.
    "denoiser": f"""{_HEADER}
denoiser (float[1, 5, 16, 2, 3] latent, float[1, 5, 16, 2, 3] x0_prev, float[1, 5, 16, 2, 3] noise,
          float[1, 5, 16, 2, 3] difference, float[8] coefficients, float[1] timestep, float[1] motion_scope,
          float[1, 226, 8] shot, int64[rows_count] rows)
      => (float[1, 5, 16, 2, 3] next_latent, float[1, 5, 16, 2, 3] x0, float[1, 5, 16, 2, 3] next_difference)
<int64[5] per_row = {{-1, 1, 1, 1, 1}}, float[1] one = {{1.0}}, float[1] quarter = {{0.25}},
 float[1] hundredth = {{0.01}},
 int64[1] zero = {{0}}, int64[1] last = {{-1}}>
{{
    signal, sigma, guidance, reuse, c_latent, c_x0, c_x0_prev, c_noise = Split<num_outputs = 8>(coefficients)
    mean = ReduceMean<keepdims = 0>(shot)
    shifted = Add(latent, mean)
    bent = Tanh(shifted)
    rows_float = Cast<to = 1>(rows)
    weights = Add(rows_float, one)
    quarters = Mul(weights, quarter)
    scale = Reshape(quarters, per_row)
    v_shapes = Mul(bent, scale)
    push = Mul(motion_scope, hundredth)
    v_rows = Add(v_shapes, push)
    v_first = Gather<axis = 0>(v_rows, zero)
    v_last = Gather<axis = 0>(v_rows, last)
    d_now = Sub(v_last, v_first)
    d_old = Mul(reuse, difference)
    next_difference = Add(d_now, d_old)
    guided = Mul(guidance, next_difference)
    v = Add(v_last, guided)
    from_latent = Mul(signal, latent)
    from_v = Mul(sigma, v)
    x0 = Sub(from_latent, from_v)
    term_latent = Mul(c_latent, latent)
    term_x0 = Mul(c_x0, x0)
    term_prev = Mul(c_x0_prev, x0_prev)
    term_noise = Mul(c_noise, noise)
    sum_one = Add(term_latent, term_x0)
    sum_two = Add(term_prev, term_noise)
    next_latent = Add(sum_one, sum_two)
}}""",
    "vae_first": f"""{_HEADER}
vae_first (float[1, 3, 16, 2, 3] latent, int64[channels] channel_order, bool[1] flip)
       => (uint8[9, 16, 24, channels] frames, float[1, 1, 16, 2, 3] cache_00)
<int64[1] last = {{2}}, int64[9] repeats = {{0, 0, 0, 1, 1, 1, 2, 2, 2}}>
{{
    cache_00 = Gather<axis = 1>(latent, last)
    clip = Gather<axis = 1>(latent, repeats)
    frames = local.paint(clip, channel_order, flip)
}}
PAINT""",
    "vae_next": f"""{_HEADER}
vae_next (float[1, 2, 16, 2, 3] latent, float[1, 1, 16, 2, 3] cache_00, int64[channels] channel_order, bool[1] flip)
      => (uint8[8, 16, 24, channels] frames)
<int64[8] repeats = {{0, 0, 0, 0, 1, 1, 1, 1}}>
{{
    seen = Add(latent, cache_00)
    clip = Gather<axis = 1>(seen, repeats)
    frames = local.paint(clip, channel_order, flip)
}}
PAINT""",
}
_PAINT = """<domain: "local", opset_import: ["": 20]>
paint (clip, channel_order, flip) => (frames)
{
    axis_channel = Constant<value = int64[1] {1}>()
    batch = Constant<value = int64[1] {0}>()
    first_three = Constant<value = int64[3] {0, 1, 2}>()
    sizes = Constant<value = float[4] {1.0, 1.0, 8.0, 8.0}>()
    bright = Constant<value = float[1] {60.0}>()
    middle = Constant<value = float[1] {128.0}>()
    low = Constant<value = float {0.0}>()
    high = Constant<value = float {255.0}>()
    alpha_pads = Constant<value = int64[8] {0, 0, 0, 0, 0, 1, 0, 0}>()
    reversed_start = Constant<value = int64[1] {-1}>()
    reversed_end = Constant<value = int64[1] {-1000}>()
    axis_height = Constant<value = int64[1] {1}>()
    back = Constant<value = int64[1] {-1}>()
    pictures = Squeeze(clip, batch)
    rgb = Gather<axis = 1>(pictures, first_three)
    nothing = Constant<value = float[0] {}>()
    large = Resize<mode = "nearest">(rgb, nothing, sizes)
    scaled = Mul(large, bright)
    lifted = Add(scaled, middle)
    clipped = Clip(lifted, low, high)
    rgba = Pad(clipped, alpha_pads, high)
    chosen = Gather<axis = 1>(rgba, channel_order)
    bytes = Cast<to = 2>(chosen)
    upright = Transpose<perm = [0, 2, 3, 1]>(bytes)
    turned = Slice(upright, reversed_start, reversed_end, axis_height, back)
    frames = Where(flip, turned, upright)
}"""
PARTS = {
    part: text.replace("PAINT", _PAINT).replace(_HEADER, _HEADER.replace("]>", ', "local": 1]>'))
    for part, text in PARTS.items()
}
