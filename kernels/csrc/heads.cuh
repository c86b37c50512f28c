// LayerNorm of one head of a token, held by neighbouring lanes of a warp (16 bytes each) and reduced by shuffles.
#pragma once

#include "launch.cuh"

namespace agk {

enum Part { QUERY = 0, KEY = 1, VALUE = 2 };

// Sum over the `lanes` threads of a head; `lanes` is a power of two. All threads of the warp must call it.
__device__ __forceinline__ float head_sum(float value, int lanes) {
    // Unrolled for the network's heads of 64 16-bit elements.
    if (lanes == 8) {
#pragma unroll
        for (int distance = 4; distance; distance /= 2) value += __shfl_xor_sync(~0u, value, distance);
        return value;
    }
    for (int distance = lanes / 2; distance; distance /= 2) value += __shfl_xor_sync(~0u, value, distance);
    return value;
}

// Subtracts a head's mean from its values. Returns 1 / standard deviation.
template <int N>
__device__ __forceinline__ float centre_head(int lanes, float inverse_width, float epsilon, float (&value)[N]) {
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < N; ++i) sum += value[i];
    const float mean = head_sum(sum, lanes) * inverse_width;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        value[i] -= mean;
        squares += value[i] * value[i];
    }
    return rsqrtf(head_sum(squares, lanes) * inverse_width + epsilon);
}

// A thread's weights and biases of the norm of queries or keys.
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
    const float inverse_deviation = centre_head(lanes, norm.inverse_width, norm.epsilon, value);
#pragma unroll
    for (int i = 0; i < N; ++i) value[i] = value[i] * inverse_deviation * norm.weight[i] + norm.bias[i];
}

// Stride between tokens of qkv, in elements.
__device__ __forceinline__ int64_t token_stride(const agk_heads& shape) { return 3 * shape.heads * shape.head_width; }

// Address of a head's vector `lane` in qkv.
template <typename T>
__device__ __forceinline__ const T* vector_of(const agk_heads& shape, int64_t token_row, int part, int head, int lane) {
    return static_cast<const T*>(shape.qkv) + ((token_row * 3 + part) * shape.heads + head) * shape.head_width +
           lane * VECTOR<T>;
}

}  // namespace agk
