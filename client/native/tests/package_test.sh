#!/bin/sh
# Installs a build, then builds a_game against it outside the checkout: by find_package, by pkg-config, from its sources. $1: the build.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$1" --prefix "$work/installed" > "$work/log"
cp -r "$here/package" "$work/game"
cmake -S "$work/game" -B "$work/by-cmake" -DCMAKE_PREFIX_PATH="$work/installed" >> "$work/log"
cmake --build "$work/by-cmake" >> "$work/log"
"$work/by-cmake/a_game"
PKG_CONFIG_PATH=$(dirname "$(find "$work/installed" -name animegamer.pc)")
export PKG_CONFIG_PATH
# shellcheck disable=SC2046
cc -std=c99 -Wall -Wextra -pedantic -Werror -o "$work/by-pkg-config" "$work/game/a_game.c" $(pkg-config --cflags --libs animegamer)
"$work/by-pkg-config"
sed "s|find_package(.*|add_subdirectory($here/.. animegamer)|" "$here/package/CMakeLists.txt" > "$work/game/CMakeLists.txt"
cmake -S "$work/game" -B "$work/by-sources" -DCMAKE_UNITY_BUILD=ON >> "$work/log"
cmake --build "$work/by-sources" --parallel 2 > "$work/log"
"$work/by-sources/a_game"
if grep -E "play_turn|driver|fuzz" "$work/log"; then exit 1; fi # in a game's project only the library is built
