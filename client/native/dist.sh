#!/bin/sh
# Packs the library for games: animegamer-native-VERSION-linux-MACHINE.tar.gz and -windows-x86_64.zip, each with two folders to
# install from, static and shared: headers, library, CMake package, pkg-config. Windows needs mingw-w64 (Debian:
# g++-mingw-w64-x86-64-posix) and is left out without it. $1: the folder for the archives.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
into=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$(sed -n 's/^project(animegamer VERSION \([0-9.]*\).*/\1/p' "$here/CMakeLists.txt")

# build NAME OPTION ..: both kinds of library, installed into the archive's folder.
build() {
    name=$1
    shift
    for kind in shared static; do
        cmake -S "$here" -B "$work/$name-$kind" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_UNITY_BUILD=ON \
            -DBUILD_SHARED_LIBS="$([ $kind = shared ] && echo ON || echo OFF)" "$@" > "$work/log"
        cmake --build "$work/$name-$kind" --target animegamer --parallel 2 >> "$work/log"
        cmake --install "$work/$name-$kind" --strip --prefix "$work/$name/$kind" >> "$work/log"
    done
    cp "$here/README.md" "$here/../../LICENSE" "$work/$name/"
}

linux=animegamer-native-$version-linux-$(uname -m)
build "$linux"
tar -C "$work" -czf "$into/$linux.tar.gz" "$linux"
echo "$into/$linux.tar.gz"
if command -v x86_64-w64-mingw32-g++-posix > /dev/null; then
    windows=animegamer-native-$version-windows-x86_64
    build "$windows" -DCMAKE_SYSTEM_NAME=Windows -DCMAKE_C_COMPILER=x86_64-w64-mingw32-gcc-posix \
        -DCMAKE_CXX_COMPILER=x86_64-w64-mingw32-g++-posix -DCMAKE_SHARED_LINKER_FLAGS="-static -static-libgcc -static-libstdc++"
    (cd "$work" && cmake -E tar cf "$into/$windows.zip" --format=zip "$windows")
    echo "$into/$windows.zip"
else
    echo "skipped: Windows: x86_64-w64-mingw32-g++-posix not found; on Debian: apt-get install g++-mingw-w64-x86-64-posix"
fi
