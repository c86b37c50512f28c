#!/bin/sh
# Installs a build, then builds a_game against it outside the checkout: by find_package and by pkg-config. $1: the build.
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
