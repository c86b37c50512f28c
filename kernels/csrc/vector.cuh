// 16 bytes of a row at a time: loads, stores and conversions to float32 of every dtype an operator takes.
//
// It does not know which operator asks. One thread holds one vector; neighbouring threads hold neighbouring vectors.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

#include "check.h"

namespace agk {

// N elements that are loaded and stored together, up to 16 bytes an access.
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

// The bytes of N elements as 32-bit words, for what is loaded ahead: elements of 16 bits would be taken apart at once, and
// whoever takes them apart waits for them.
template <typename T, int N>
struct alignas(VECTOR_BYTES) Words {
    uint32_t w[sizeof(T) * N / sizeof(uint32_t)];
};

template <int N, typename T>
__device__ __forceinline__ Words<T, N> load_words(const T* from) {
    return *reinterpret_cast<const Words<T, N>*>(from);
}

// N floats of an array that the kernel only reads: a 16-byte load for each four.
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
        // A bfloat16 is the upper half of its float32: an instruction each.
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

// Four numbers as the bytes of a word: put together one at a time they take more instructions than all before.
template <typename T>
__device__ __forceinline__ uint32_t four_codes(float a, float b, float c, float d) {
    if constexpr (std::is_same_v<T, __nv_fp8_e4m3>) {
        // Two at a time, as the GPU converts them.
        return __nv_fp8x4_e4m3(make_float4(a, b, c, d)).__x;
    } else {
        // Beside 1.5 * 2^23 an integer from -127 to 127 is the last byte of a float, rounded to nearest even.
        const auto code = [](float x) { return __float_as_uint(x + 12582912.0f); };
        return __byte_perm(__byte_perm(code(a), code(b), 0x0040), __byte_perm(code(c), code(d), 0x0040), 0x5410);
    }
}

template <typename T, int N>
__device__ __forceinline__ void store(T* to, const float (&from)[N]) {
    if constexpr (QUANTISED<T> && N % 4 == 0) {
        Pack<uint32_t, N / 4> words;
#pragma unroll
        for (int i = 0; i < N; i += 4) words.v[i / 4] = four_codes<T>(from[i], from[i + 1], from[i + 2], from[i + 3]);
        *reinterpret_cast<Pack<uint32_t, N / 4>*>(to) = words;
    } else {
        *reinterpret_cast<Pack<T, N>*>(to) = to_pack<T>(from);
    }
}

// Largest number of a quantised format, and the bits of the smallest magnitude a row is scaled by (1e-30).
template <typename T>
constexpr float LARGEST = std::is_same_v<T, __nv_fp8_e4m3> ? 448.0f : 127.0f;
constexpr unsigned SMALLEST_MAGNITUDE_BITS = 0x0da24260u;

// Magnitudes compare as their bits do, and a NaN's are the largest: one integer maximum finds both.
__device__ __forceinline__ unsigned magnitude_bits(float x) { return __float_as_uint(fabsf(x)); }

}  // namespace agk
