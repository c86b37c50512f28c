// Times every operator at full size on the current GPU: `animegamer_kernels_bench [repeats]`, a table, then one JSON line.
//
// The floor of a case is its roofline bound: the bytes that the operator must move, at the measured bandwidth of a device copy.
// Each input is read once (twice for the spatial norm and the smoothed keys, whose statistics come first), each output
// written once. The floor of attention is the time of its MMAs at the measured rate of the same instructions. Calls rotate over
// enough sets of buffers to defeat the caches. Buffers hold random numbers, because zeros run faster.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench_timing.cuh"
#include "launch.cuh"
#include "tensor_cores.cuh"

namespace {

using agk::divide_up;

// Full size: a guided pair, each with 6976 tokens of width 1920, 226 of them the shot's (MODEL.md section 4).
constexpr int64_t BATCH = 2, TOKENS = 6976, SHOT = 226, WIDTH = 1920, ROWS = BATCH * TOKENS, HEADS = 30, HEAD_WIDTH = 64;
using Half = __nv_bfloat16;

Case rows_case(const char* out_name, int out_dtype, int64_t out_bytes, bool gated, bool normed) {
    const double moved = static_cast<double>(ROWS) * WIDTH *
                         ((gated ? 6 : 2) + (normed ? static_cast<double>(out_bytes) : 0.0));
    const auto prepare = [=](Arena& arena) -> Call {
        const agk_rows shape{ROWS, TOKENS, SHOT, WIDTH, 0, AGK_BF16};
        float* table = arena.take<float>(8 * WIDTH);
        agk_norm norm{};
        if (normed) {
            norm = {table, table + WIDTH, table + 2 * WIDTH, table + 3 * WIDTH, table + 4 * WIDTH, table + 5 * WIDTH,
                    arena.take<Half>(ROWS * WIDTH), arena.take<float>(ROWS), 1e-5f, out_dtype};
        }
        if (!gated) {
            const agk_norm_modulate_args args{sizeof args, shape, arena.take<Half>(ROWS * WIDTH), norm};
            return [args](cudaStream_t stream) { check_status(agk_norm_modulate(&args, stream)); };
        }
        const agk_gate_residual_args args{sizeof args, shape, arena.take<Half>(ROWS * WIDTH), arena.take<Half>(ROWS * WIDTH),
                                          table + 6 * WIDTH, table + 7 * WIDTH, arena.take<Half>(ROWS * WIDTH), norm};
        return [args](cudaStream_t stream) { check_status(agk_gate_residual(&args, stream)); };
    };
    const std::string name = std::string(gated ? "gate_residual" : "norm_modulate") + (normed ? out_name : "");
    return {name, "2 x 6976 x 1920 bf16", moved, prepare};
}

// GELU and quantisation after the MLP's first product, to FP8 or from int32 sums; or dequantised sums only.
Case epilogue_case(const char* name, int64_t width, bool sums, bool gelu, int out_dtype) {
    const int64_t in_bytes = sums ? 4 : 2, out_bytes = out_dtype == AGK_BF16 ? 2 : 1;
    const auto prepare = [=](Arena& arena) -> Call {
        agk_epilogue_args args{sizeof args, AGK_BF16, ROWS, width, nullptr, nullptr, nullptr, nullptr,
                               arena.take<int8_t>(ROWS * width * out_bytes), arena.take<float>(ROWS), out_dtype, gelu};
        if (sums) {
            args.x = arena.take<int32_t>(ROWS * width);
            args.row_scales = arena.take<float>(ROWS);
            args.column_scales = arena.take<float>(width);
            args.bias = arena.take<float>(width);
        } else {
            args.x = arena.take<Half>(ROWS * width);
        }
        return [args](cudaStream_t stream) { check_status(agk_epilogue(&args, stream)); };
    };
    const std::string shape = "2 x 6976 x " + std::to_string(width) + (sums ? " int32" : " bf16");
    return {std::string("epilogue") + name, shape, static_cast<double>(ROWS) * static_cast<double>(width * (in_bytes + out_bytes)),
            prepare};
}

agk_heads heads(Arena& arena, Half* qkv) {
    float* vectors = arena.take<float>(4 * HEAD_WIDTH);
    return {BATCH, TOKENS, HEADS, HEAD_WIDTH, qkv, vectors, vectors + HEAD_WIDTH, vectors + 2 * HEAD_WIDTH,
            vectors + 3 * HEAD_WIDTH, 1e-6f, AGK_BF16};
}

Case heads_case(bool in_place) {
    const auto prepare = [=](Arena& arena) -> Call {
        Half* qkv = arena.take<Half>(ROWS * 3 * WIDTH);
        const agk_heads shape = heads(arena, qkv);
        agk_head_norm_args args{sizeof args, shape, qkv, qkv + WIDTH, nullptr, TOKENS * 3 * WIDTH, 3 * WIDTH, HEAD_WIDTH};
        if (!in_place) {
            args = {sizeof args, shape, arena.take<Half>(ROWS * WIDTH), arena.take<Half>(ROWS * WIDTH),
                    arena.take<Half>(ROWS * WIDTH), TOKENS * WIDTH, HEAD_WIDTH, TOKENS * HEAD_WIDTH};
        }
        return [args](cudaStream_t stream) { check_status(agk_head_norm(&args, stream)); };
    };
    return {in_place ? "head_norm in place" : "head_norm head-major", "2 x 6976 x 30 x 64 bf16",
            static_cast<double>(ROWS) * WIDTH * 2 * 2 * (in_place ? 2 : 3), prepare};
}

// A 4-bit weight of the predictor's MLP: unpacked, or times the tokens of an answer (MODEL.md section 2).
Case packed_case(int64_t outputs, int64_t inputs, int64_t rows) {
    constexpr int64_t BLOCK = 64;
    const double held = static_cast<double>(outputs * inputs) * (0.5 + 4.0 / BLOCK);
    const double numbers = 2.0 * static_cast<double>(rows == 0 ? outputs * inputs : rows * (inputs + outputs));
    const auto prepare = [=](Arena& arena) -> Call {
        const agk_packed weight{outputs, inputs, BLOCK, 4, arena.take<int8_t>(outputs * inputs / 2),
                                arena.take<float>(outputs * inputs / BLOCK)};
        if (rows == 0) {
            const agk_unpack_args args{sizeof args, AGK_BF16, weight, arena.take<Half>(outputs * inputs)};
            return [args](cudaStream_t stream) { check_status(agk_unpack(&args, stream)); };
        }
        const agk_packed_product_args args{sizeof args, AGK_BF16, weight, rows, arena.take<Half>(rows * inputs),
                                           arena.take<Half>(rows * outputs)};
        return [args](cudaStream_t stream) { check_status(agk_packed_product(&args, stream)); };
    };
    const std::string shape = (rows ? std::to_string(rows) + " x " : "") + std::to_string(outputs) + " x " + std::to_string(inputs);
    return {rows ? "packed_product" : "unpack", shape + " 4 bits", held + numbers, prepare};
}

agk_head_norm_int8_args int8_heads(Arena& arena, Half* qkv) {
    const agk_heads shape = heads(arena, qkv);
    const int64_t query_groups = divide_up(TOKENS, 32), key_groups = divide_up(TOKENS, 64);
    const int64_t bytes = agk_head_norm_int8_workspace(&shape);
    return {sizeof(agk_head_norm_int8_args), shape, arena.take<int8_t>(ROWS * WIDTH), arena.take<int8_t>(ROWS * WIDTH),
            arena.take<float>(BATCH * HEADS * query_groups), arena.take<float>(BATCH * HEADS * key_groups),
            arena.take<float>(BATCH * HEADS * HEAD_WIDTH), arena.take<int8_t>(bytes), bytes, 32, 64};
}

Case int8_case() {
    const auto prepare = [](Arena& arena) -> Call {
        const agk_head_norm_int8_args args = int8_heads(arena, arena.take<Half>(ROWS * 3 * WIDTH));
        return [args](cudaStream_t stream) { check_status(agk_head_norm_int8(&args, stream)); };
    };
    return {"head_norm_int8", "2 x 6976 x 30 x 64 bf16", static_cast<double>(ROWS) * WIDTH * (2 * 3 + 2), prepare};
}

Case attention_case(agk_products products) {
    const auto prepare = [=](Arena& arena) -> Call {
        Half* qkv = arena.take<Half>(ROWS * 3 * WIDTH);
        const agk_head_norm_int8_args given = int8_heads(arena, qkv);
        check_status(agk_head_norm_int8(&given, nullptr));
        const agk_attention_int8_args args{
            sizeof args, AGK_BF16, BATCH, TOKENS, HEADS, HEAD_WIDTH, given.query, given.key, given.query_scales, given.key_scales,
            given.query_group, given.key_group, qkv + 2 * WIDTH, TOKENS * 3 * WIDTH, 3 * WIDTH, HEAD_WIDTH,
            arena.take<Half>(ROWS * WIDTH), products};
        return [args](cudaStream_t stream) { check_status(agk_attention_int8(&args, stream)); };
    };
    const double operations = 2.0 * BATCH * TOKENS * TOKENS * WIDTH;
    const bool half_sums = products == AGK_HALF_SUMS;
    constexpr const char* NAMES[] = {"attention_int8", "attention_int8 half sums", "attention_int8 wgmma"};
    const char* name = NAMES[products];
    return {name, "2 x 6976 x 30 x 64 bf16",
            static_cast<double>(ROWS) * WIDTH * (2 + 2 * 2), prepare, operations, half_sums ? 0.0 : operations,
            half_sums ? operations : 0.0};
}

Case half_attention_case() {
    const auto prepare = [=](Arena& arena) -> Call {
        const Half* qkv = arena.take<Half>(ROWS * 3 * WIDTH);
        const agk_attention_args args{sizeof args, AGK_BF16, BATCH, TOKENS, HEADS, HEAD_WIDTH, qkv, qkv + WIDTH, qkv + 2 * WIDTH,
                                      TOKENS * 3 * WIDTH, 3 * WIDTH, HEAD_WIDTH, arena.take<Half>(ROWS * WIDTH)};
        return [args](cudaStream_t stream) { check_status(agk_attention(&args, stream)); };
    };
    const double operations = 4.0 * BATCH * TOKENS * TOKENS * WIDTH;
    return {"attention wgmma", "2 x 6976 x 30 x 64 bf16", static_cast<double>(ROWS) * WIDTH * 4 * 2, prepare, 0.0, operations};
}

Case step_case() {
    constexpr int64_t ELEMENTS = 5 * 16 * 60 * 90;
    const auto prepare = [](Arena& arena) -> Call {
        const agk_guided_step_args args{
            sizeof args, AGK_BF16, BATCH, 5, 16, 60, 90, arena.take<Half>(BATCH * ELEMENTS), arena.take<float>(ELEMENTS),
            arena.take<float>(ELEMENTS), arena.take<float>(ELEMENTS), arena.take<float>(ELEMENTS), arena.take<float>(8),
            arena.take<float>(ELEMENTS), arena.take<float>(ELEMENTS), arena.take<float>(ELEMENTS), arena.take<Half>(ELEMENTS)};
        return [args](cudaStream_t stream) { check_status(agk_guided_step(&args, stream)); };
    };
    return {"guided_step", "2 x 5 x 16 x 60 x 90 bf16", static_cast<double>(ELEMENTS) * (4 * 7 + 2 * BATCH + 2), prepare};
}

// All draws of a turn in one sum, which is as much work as those of all its steps.
Case noise_case() {
    constexpr int64_t ELEMENTS = 5 * 16 * 60 * 90;
    const auto prepare = [](Arena& arena) -> Call {
        static const std::vector<float> weights(50, 0.1f);
        const agk_noise_args args{sizeof args, 50, ELEMENTS, 0, reinterpret_cast<const uint64_t*>(arena.take<int32_t>(6)),
                                  arena.take<float>(65536), weights.data(), arena.take<float>(ELEMENTS)};
        return [args](cudaStream_t stream) { check_status(agk_noise(&args, stream)); };
    };
    return {"noise", "50 draws of 5 x 16 x 60 x 90", static_cast<double>(ELEMENTS + 65536) * 4, prepare};
}

Case pixels_case(int channels, bool interleaved) {
    constexpr int64_t PLACES = 9 * 480 * 720;
    const auto prepare = [=](Arena& arena) -> Call {
        const agk_pixels_args args{sizeof args, AGK_BF16, 9, 480, 720, arena.take<Half>(3 * PLACES),
                                   reinterpret_cast<uint8_t*>(arena.take<int8_t>(4 * PLACES)), interleaved, 1, channels,
                                   {2, 1, 0, 3}};
        return [args](cudaStream_t stream) { check_status(agk_pixels(&args, stream)); };
    };
    const std::string name = std::string("pixels ") + (channels == 4 ? "bgra " : "bgr ") + (interleaved ? "interleaved" : "planar");
    return {name, "9 x 480 x 720 bf16", static_cast<double>(PLACES) * (6 + channels), prepare};
}

Case spatial_case(int64_t frames, int64_t scale, int64_t channels) {
    const int64_t height = 60 * scale, width = 90 * scale, count = frames * height * width * channels;
    const int64_t cells = 3 * 60 * 90 * channels;
    const auto prepare = [=](Arena& arena) -> Call {
        agk_spatial_norm_args args{sizeof args, AGK_BF16, frames, height, width, channels, 32, 3, 60, 90,
                                   arena.take<Half>(count), arena.take<Half>(cells), arena.take<Half>(cells),
                                   arena.take<float>(channels), arena.take<float>(channels), arena.take<float>(channels),
                                   arena.take<Half>(count), nullptr, 0, 1e-6f};
        args.workspace_bytes = agk_spatial_norm_workspace(&args);
        args.workspace = arena.take<int8_t>(args.workspace_bytes);
        return [args](cudaStream_t stream) { check_status(agk_spatial_norm(&args, stream)); };
    };
    const std::string shape = std::to_string(frames) + " x " + std::to_string(height) + " x " + std::to_string(width) + " x " +
                              std::to_string(channels) + " bf16";
    return {"spatial_norm", shape, 2.0 * (3.0 * static_cast<double>(count) + 2.0 * static_cast<double>(cells)), prepare};
}

// MMAs only. Each warp has eight accumulators, so that MMAs do not depend on each other.
constexpr int SUMS = 8, ROUNDS = 4096, RATE_WARPS = 4;

template <typename Sum>
__global__ void product_kernel(const uint32_t* operands, Sum* out) {
    uint32_t a[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = operands[threadIdx.x * 6 + i];
    const uint32_t b0 = operands[threadIdx.x * 6 + 4], b1 = operands[threadIdx.x * 6 + 5];
    // float16 sums are two per register.
    constexpr int REGISTERS = std::is_same_v<Sum, uint32_t> ? 2 : 4;
    Sum sums[SUMS][REGISTERS] = {};
    for (int round = 0; round < ROUNDS; ++round) {
#pragma unroll
        for (int i = 0; i < SUMS; ++i) {
            if constexpr (std::is_same_v<Sum, float>) {
                agk::mma<Half>(sums[i], a, b0, b1);
            } else {
                agk::mma(sums[i], a, b0, b1);
            }
        }
    }
    Sum total = 0;
#pragma unroll
    for (int i = 0; i < SUMS * REGISTERS; ++i) total += sums[i / REGISTERS][i % REGISTERS];
    out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}

// Operations per second of MMAs: INT8 (Sum int, 16 x 8 x 32), or 16-bit (Sum float, or uint32_t for float16 sums, 16 x 8 x 16).
template <typename Sum>
double product_rate(int processors, int repeats, cudaStream_t stream) {
    const unsigned blocks = static_cast<unsigned>(processors) * 4;
    const auto prepare = [=](Arena& arena) -> Call {
        const auto* operands = reinterpret_cast<const uint32_t*>(arena.take<Half>(RATE_WARPS * agk::WARP * 12));
        auto* out = reinterpret_cast<Sum*>(arena.take<float>(blocks * RATE_WARPS * agk::WARP));
        return [=](cudaStream_t on) {
            product_kernel<Sum><<<blocks, RATE_WARPS * agk::WARP, 0, on>>>(operands, out);
            check_status(cudaGetLastError());
        };
    };
    const double each = 2.0 * 16 * 8 * (std::is_same_v<Sum, int> ? 32 : 16);
    return each * SUMS * ROUNDS * RATE_WARPS * blocks / median_seconds({"", "", 1e12, prepare}, repeats, stream);
}

Case copy_case() {
    constexpr int64_t BYTES = 256 * 1024 * 1024;
    const auto prepare = [](Arena& arena) -> Call {
        int8_t *from = arena.take<int8_t>(BYTES), *to = arena.take<int8_t>(BYTES);
        return [=](cudaStream_t stream) { check_status(cudaMemcpyAsync(to, from, BYTES, cudaMemcpyDeviceToDevice, stream)); };
    };
    return {"copy", "256 MiB", 2.0 * BYTES, prepare};
}

}  // namespace

int main(int argc, char** argv) {
    const int repeats = argc > 1 ? std::atoi(argv[1]) : 30;
    if (repeats < 1) {
        std::fprintf(stderr, "usage: %s [repeats], 1 or more; found %s\n", argv[0], argv[1]);
        return 2;
    }
    int device = 0;
    cudaDeviceProp gpu{};
    cudaStream_t stream = nullptr;
    check_status(cudaGetDevice(&device));
    check_status(cudaGetDeviceProperties(&gpu, device));
    check_status(cudaStreamCreate(&stream));
    const Case copy = copy_case();
    const double ceiling = copy.bytes / median_seconds(copy, repeats, stream);
    const double int8_rate = product_rate<int>(gpu.multiProcessorCount, repeats, stream);
    const double half_rate = product_rate<float>(gpu.multiProcessorCount, repeats, stream);
    const double half_sum_rate = product_rate<uint32_t>(gpu.multiProcessorCount, repeats, stream);
    std::printf("%s, sm_%d%d, %d multiprocessors; copy %.0f GB/s; MMA %.0f TOP/s INT8, %.0f bf16, %.0f fp16 with fp16 sums; "
                "medians of %d runs of at least %d calls\n\n", gpu.name, gpu.major, gpu.minor,
                gpu.multiProcessorCount, ceiling / 1e9, int8_rate / 1e12, half_rate / 1e12, half_sum_rate / 1e12, repeats, CALLS);
    std::printf("%-30s %-28s %9s %9s %9s %9s\n", "operator", "shape", "floor us", "us", "GB/s", "of floor");
    std::vector<Case> cases{
        rows_case(" to bf16", AGK_BF16, 2, false, true), rows_case(" to e4m3", AGK_E4M3, 1, false, true),
        rows_case(" to int8", AGK_I8, 1, false, true),   rows_case("", AGK_BF16, 2, true, false),
        rows_case(" to bf16", AGK_BF16, 2, true, true),  rows_case(" to e4m3", AGK_E4M3, 1, true, true),
        epilogue_case(" gelu to e4m3", 4 * WIDTH, false, true, AGK_E4M3),
        epilogue_case(" to e4m3", WIDTH, false, false, AGK_E4M3),
        epilogue_case(" gelu to int8", 4 * WIDTH, true, true, AGK_I8),
        epilogue_case(" to bf16", 3 * WIDTH, true, false, AGK_BF16),
        heads_case(true),         heads_case(false),        int8_case(),
        packed_case(14336, 4096, 0),  packed_case(14336, 4096, 3), packed_case(4096, 14336, 3), packed_case(1024, 4096, 3),
        attention_case(AGK_WARPS), attention_case(AGK_HALF_SUMS),     step_case(),              noise_case(),
        pixels_case(4, true),     pixels_case(3, true),     pixels_case(4, false),
        spatial_case(9, 8, 128),  spatial_case(9, 4, 256),  spatial_case(5, 2, 256),  spatial_case(3, 1, 512),
    };
    // Floors are computed from the rate of mma.sync, so wgmma may be faster.
    if (gpu.major == 9 && gpu.minor == 0) {
        cases.push_back(attention_case(AGK_WARPGROUPS));
        cases.push_back(half_attention_case());
    }
    std::string json;
    for (const Case& bench : cases) {
        const double seconds = median_seconds(bench, repeats, stream);
        const double products = bench.int8_operations / int8_rate + bench.half_operations / half_rate +
                                bench.half_sum_operations / half_sum_rate;
        const double floor = std::max(bench.bytes / ceiling, products);
        std::printf("%-30s %-28s %9.1f %9.1f %9.0f %8.2fx\n", bench.name.c_str(), bench.shape.c_str(), floor * 1e6,
                    seconds * 1e6, bench.bytes / seconds / 1e9, seconds / floor);
        char entry[256];
        std::snprintf(entry, sizeof entry,
                      "%s{\"kernel\": \"%s\", \"shape\": \"%s\", \"bytes\": %.0f, \"microseconds_p50\": %.2f, "
                      "\"floor_microseconds\": %.2f}",
                      json.empty() ? "" : ", ", bench.name.c_str(), bench.shape.c_str(), bench.bytes, seconds * 1e6, floor * 1e6);
        json += entry;
    }
    std::printf("\n{\"machine\": \"%s\", \"copy_gigabytes_per_second\": %.1f, \"int8_teraops\": %.1f, \"bf16_teraops\": %.1f, "
                "\"fp16_sums_teraops\": %.1f, \"repeats\": %d, \"kernels\": [%s]}\n", gpu.name, ceiling / 1e9, int8_rate / 1e12, half_rate / 1e12, half_sum_rate / 1e12,
                repeats, json.c_str());
    return 0;
}
