// A head of a token held by neighbouring threads of a warp, 16 bytes each, and its LayerNorm by shuffles.
#pragma once

#include "launch.cuh"

namespace agk {

enum Part { QUERY = 0, KEY = 1, VALUE = 2 };

// Sum over the `lanes` (a power of two) threads of a head. Every thread of the warp takes part.
__device__ __forceinline__ float head_sum(float value, int lanes) {
    for (int distance = lanes / 2; distance; distance /= 2) value += __shfl_xor_sync(~0u, value, distance);
    return value;
}

template <int N>
__device__ __forceinline__ void normalise_head(const agk_heads& shape, Part part, int lane, int lanes, float (&value)[N]) {
    const float inverse_width = 1.0f / static_cast<float>(shape.head_width);
    float sum = 0.0f, squares = 0.0f, weight[N], bias[N];
#pragma unroll
    for (int i = 0; i < N; ++i) sum += value[i];
    const float mean = head_sum(sum, lanes) * inverse_width;
#pragma unroll
    for (int i = 0; i < N; ++i) squares += (value[i] - mean) * (value[i] - mean);
    const float deviation = rsqrtf(head_sum(squares, lanes) * inverse_width + shape.epsilon);
    load_floats((part == QUERY ? shape.query_weight : shape.key_weight) + lane * N, weight);
    load_floats((part == QUERY ? shape.query_bias : shape.key_bias) + lane * N, bias);
#pragma unroll
    for (int i = 0; i < N; ++i) value[i] = (value[i] - mean) * deviation * weight[i] + bias[i];
}

// Where a head's vector `lane` lies in qkv.
template <typename T>
__device__ __forceinline__ const T* vector_of(const agk_heads& shape, int64_t token_row, int part, int head, int lane) {
    return static_cast<const T*>(shape.qkv) + ((token_row * 3 + part) * shape.heads + head) * shape.head_width +
           lane * VECTOR<T>;
}

}  // namespace agk
