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

// A thread's part of the norm of queries or of keys.
template <int N>
struct HeadNorm {
    float weight[N], bias[N], inverse_width, epsilon;

    __device__ __forceinline__ HeadNorm(const agk_heads& shape, bool queries, int lane)
        : inverse_width(1.0f / static_cast<float>(shape.head_width)), epsilon(shape.epsilon) {
        load_floats((queries ? shape.query_weight : shape.key_weight) + lane * N, weight);
        load_floats((queries ? shape.query_bias : shape.key_bias) + lane * N, bias);
    }
};

template <int N>
__device__ __forceinline__ void normalise_head(const HeadNorm<N>& norm, int lanes, float (&value)[N]) {
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < N; ++i) sum += value[i];
    const float mean = head_sum(sum, lanes) * norm.inverse_width;
#pragma unroll
    for (int i = 0; i < N; ++i) squares += (value[i] - mean) * (value[i] - mean);
    const float deviation = rsqrtf(head_sum(squares, lanes) * norm.inverse_width + norm.epsilon);
#pragma unroll
    for (int i = 0; i < N; ++i) value[i] = (value[i] - mean) * deviation * norm.weight[i] + norm.bias[i];
}

// Where a head's vector `lane` lies in qkv.
template <typename T>
__device__ __forceinline__ const T* vector_of(const agk_heads& shape, int64_t token_row, int part, int head, int lane) {
    return static_cast<const T*>(shape.qkv) + ((token_row * 3 + part) * shape.heads + head) * shape.head_width +
           lane * VECTOR<T>;
}

}  // namespace agk
