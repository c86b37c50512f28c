// Conversions of floating-point formats of less than 32 bits, one value at a time, rounding to nearest, ties to even.
//
// E4M3 has no infinities and one NaN per sign. Its largest value is 448, and larger values become 448
// (OCP 8-bit Floating Point Specification, revision 1.0).
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "../animegamer_kernels.h"

namespace agk::host {

struct Format {
    int exponent_bits, mantissa_bits;
    bool infinities;
};
constexpr Format F16{5, 10, true}, BF16{8, 7, true}, E4M3{4, 3, false};
constexpr float E4M3_MAX = 448.0f, I8_MAX = 127.0f;

inline float decode(unsigned bits, Format format) {
    const int bias = (1 << (format.exponent_bits - 1)) - 1;
    const unsigned mantissa_mask = (1u << format.mantissa_bits) - 1, top = (1u << format.exponent_bits) - 1;
    const unsigned mantissa = bits & mantissa_mask, exponent = (bits >> format.mantissa_bits) & top;
    const float sign = bits >> (format.exponent_bits + format.mantissa_bits) ? -1.0f : 1.0f;
    if (exponent == top && format.infinities) {
        return mantissa ? std::numeric_limits<float>::quiet_NaN() : sign * std::numeric_limits<float>::infinity();
    }
    if (exponent == top && mantissa == mantissa_mask) return std::numeric_limits<float>::quiet_NaN();
    const unsigned whole = exponent ? mantissa | (1u << format.mantissa_bits) : mantissa;
    return sign * std::ldexp(static_cast<float>(whole), static_cast<int>(exponent ? exponent : 1) - bias - format.mantissa_bits);
}

inline unsigned encode(float value, Format format) {
    const int bias = (1 << (format.exponent_bits - 1)) - 1;
    const unsigned top = (1u << format.exponent_bits) - 1, one = 1u << format.mantissa_bits;
    const unsigned sign = (std::signbit(value) ? 1u : 0u) << (format.exponent_bits + format.mantissa_bits);
    const unsigned largest = format.infinities ? top << format.mantissa_bits : ((top + 1) << format.mantissa_bits) - 2;
    if (std::isnan(value)) return sign | (((top + 1) << format.mantissa_bits) - 1);
    if (std::isinf(value)) return sign | largest;
    const double magnitude = std::fabs(static_cast<double>(value));
    if (magnitude == 0.0) return sign;
    int exponent = std::ilogb(magnitude) < 1 - bias ? 1 - bias : std::ilogb(magnitude);
    auto whole = static_cast<unsigned>(std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent)));
    if (whole == 2 * one) {
        whole = one;
        ++exponent;
    }
    const unsigned bits = whole < one ? whole : (static_cast<unsigned>(exponent + bias) << format.mantissa_bits) + whole - one;
    return sign | (bits > largest ? largest : bits);
}

inline float get(const void* array, int dtype, int64_t index) {
    switch (dtype) {
        case AGK_F32: return static_cast<const float*>(array)[index];
        case AGK_F16: return decode(static_cast<const uint16_t*>(array)[index], F16);
        case AGK_BF16: return decode(static_cast<const uint16_t*>(array)[index], BF16);
        case AGK_E4M3: return decode(static_cast<const uint8_t*>(array)[index], E4M3);
        default: return static_cast<const int8_t*>(array)[index];
    }
}

inline void put(void* array, int dtype, int64_t index, float value) {
    switch (dtype) {
        case AGK_F32: static_cast<float*>(array)[index] = value; break;
        case AGK_F16: static_cast<uint16_t*>(array)[index] = static_cast<uint16_t>(encode(value, F16)); break;
        case AGK_BF16: static_cast<uint16_t*>(array)[index] = static_cast<uint16_t>(encode(value, BF16)); break;
        case AGK_E4M3: static_cast<uint8_t*>(array)[index] = static_cast<uint8_t>(encode(value, E4M3)); break;
        default: {
            // INT8 has no NaN; the row's scale is NaN instead.
            const float bounded = std::fmax(-I8_MAX, std::fmin(I8_MAX, std::isnan(value) ? 0.0f : value));
            static_cast<int8_t*>(array)[index] = static_cast<int8_t>(std::nearbyint(bounded));
        }
    }
}

}  // namespace agk::host
