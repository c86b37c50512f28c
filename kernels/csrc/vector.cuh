// Loads and stores of 16 bytes, and conversions between float32 and the operators' dtypes.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

#include "check.h"

namespace agk {

// N elements, loaded and stored up to 16 bytes at a time.
template <typename T, int N>
struct alignas(sizeof(T) * N < VECTOR_BYTES ? sizeof(T) * N : VECTOR_BYTES) Pack {
    T v[N];
};

template <typename T>
constexpr int VECTOR = static_cast<int>(VECTOR_BYTES / sizeof(T));

template <typename T>
constexpr bool QUANTISED = std::is_same_v<T, __nv_fp8_e4m3> || std::is_same_v<T, int8_t>;

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float to_float(int32_t x) { return static_cast<float>(x); }

template <typename T>
__device__ __forceinline__ T from_float(float x) {
    if constexpr (std::is_same_v<T, float>) return x;
    if constexpr (std::is_same_v<T, __half>) return __float2half_rn(x);
    if constexpr (std::is_same_v<T, __nv_bfloat16>) return __float2bfloat16_rn(x);
    if constexpr (std::is_same_v<T, __nv_fp8_e4m3>) return __nv_fp8_e4m3(x);  // to the nearest, saturating at 448
    if constexpr (std::is_same_v<T, int8_t>) return static_cast<int8_t>(max(-127, min(127, __float2int_rn(x))));
}

template <int N, typename T>
__device__ __forceinline__ Pack<T, N> load(const T* from) {
    return *reinterpret_cast<const Pack<T, N>*>(from);
}

// N elements as 32-bit words, for prefetched data: the compiler would unpack 16-bit elements immediately, which waits for the
// load.
template <typename T, int N>
struct alignas(VECTOR_BYTES) Words {
    uint32_t w[sizeof(T) * N / sizeof(uint32_t)];
};

template <int N, typename T>
__device__ __forceinline__ Words<T, N> load_words(const T* from) {
    return *reinterpret_cast<const Words<T, N>*>(from);
}

// Loads N floats, 16 bytes at a time.
template <int N>
__device__ __forceinline__ void load_floats(const float* from, float (&to)[N]) {
    constexpr int PART = N < 4 ? N : 4;
#pragma unroll
    for (int i = 0; i < N; i += PART) {
        const Pack<float, PART> part = load<PART>(from + i);
#pragma unroll
        for (int j = 0; j < PART; ++j) to[i + j] = part.v[j];
    }
}

template <int N, typename T>
__device__ __forceinline__ void to_floats(const Pack<T, N>& from, float (&to)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = to_float(from.v[i]);
}

template <typename T, int N>
__device__ __forceinline__ void to_floats(const Words<T, N>& from, float (&to)[N]) {
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        // A bfloat16 is the upper half of a float32: one instruction per element.
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            to[i] = __uint_as_float(from.w[i / 2] << 16);
            to[i + 1] = __uint_as_float(from.w[i / 2] & 0xffff0000u);
        }
    } else {
        Pack<T, N> pack;
        memcpy(static_cast<void*>(&pack), &from, sizeof pack);
        to_floats(pack, to);
    }
}

template <typename T, int N>
__device__ __forceinline__ Pack<T, N> to_pack(const float (&from)[N]) {
    Pack<T, N> pack;
#pragma unroll
    for (int i = 0; i < N; ++i) pack.v[i] = from_float<T>(from[i]);
    return pack;
}

// Packs four numbers into a word, with fewer instructions than one at a time.
template <typename T>
__device__ __forceinline__ uint32_t pack_codes(float a, float b, float c, float d) {
    if constexpr (std::is_same_v<T, __nv_fp8_e4m3>) {
        // The GPU converts two at a time.
        return __nv_fp8x4_e4m3(make_float4(a, b, c, d)).__x;
    } else {
        // Adding 1.5 * 2^23 rounds to the nearest integer (ties to even), which is then the low byte of the float.
        const auto code = [](float x) { return __float_as_uint(x + 12582912.0f); };
        return __byte_perm(__byte_perm(code(a), code(b), 0x0040), __byte_perm(code(c), code(d), 0x0040), 0x5410);
    }
}

template <typename T, int N>
__device__ __forceinline__ void store(T* to, const float (&from)[N]) {
    if constexpr (QUANTISED<T> && N % 4 == 0) {
        Pack<uint32_t, N / 4> words;
#pragma unroll
        for (int i = 0; i < N; i += 4) words.v[i / 4] = pack_codes<T>(from[i], from[i + 1], from[i + 2], from[i + 3]);
        *reinterpret_cast<Pack<uint32_t, N / 4>*>(to) = words;
    } else {
        *reinterpret_cast<Pack<T, N>*>(to) = to_pack<T>(from);
    }
}

// Largest value of a quantised format, and the bits of the smallest magnitude that scales a row (1e-30).
template <typename T>
constexpr float MAX_VALUE = std::is_same_v<T, __nv_fp8_e4m3> ? 448.0f : 127.0f;
constexpr unsigned MIN_MAGNITUDE_BITS = 0x0da24260u;

// Magnitudes order like their bits, with NaN above all others, so an integer maximum also propagates NaN.
__device__ __forceinline__ unsigned magnitude_bits(float x) { return __float_as_uint(fabsf(x)); }

}  // namespace agk
