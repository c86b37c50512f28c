// Tests as functions with names, which `run_tests` runs.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

inline std::vector<std::pair<std::string, std::function<void()>>> &all_tests() {
    static std::vector<std::pair<std::string, std::function<void()>>> tests;
    return tests;
}

struct Registered {
    Registered(const char *name, std::function<void()> test) { all_tests().emplace_back(name, std::move(test)); }
};

#define TEST(name)                                                                                                                       \
    static void name();                                                                                                                  \
    static const Registered registered_##name(#name, name);                                                                              \
    static void name()

#define CHECK(claim)                                                                                                                     \
    do {                                                                                                                                 \
        if (!(claim)) {                                                                                                                  \
            throw std::runtime_error(std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": " #claim);                              \
        }                                                                                                                                \
    } while (false)

template <typename A, typename B> void check_same(const A &found, const B &expected, const char *what, int line) {
    if (!(found == expected)) {
        const auto shown = [](const auto &value) {
            if constexpr (std::is_convertible_v<decltype(value), std::string>) {
                return std::string(value);
            } else {
                return std::to_string(value);
            }
        };
        throw std::runtime_error("line " + std::to_string(line) + ": " + what + ": found " + shown(found) + ", expected " + shown(expected));
    }
}

#define SAME(found, expected) check_same(found, expected, #found, __LINE__)

inline int run_tests() {
    std::size_t failed = 0;
    for (const auto &[name, test] : all_tests()) {
        std::printf("%s ..\n", name.c_str());
        std::fflush(stdout);
        try {
            test();
        } catch (const std::exception &error) {
            std::printf("FAILED %s: %s\n", name.c_str(), error.what());
            ++failed;
        }
    }
    std::printf("%zu of %zu tests passed\n", all_tests().size() - failed, all_tests().size());
    return failed == 0 ? 0 : 1;
}
