# SPDX-License-Identifier: MIT
# oneTBB's scalable allocator: the vendor's own release binaries, from the published wheel.
title="oneTBB tbbmalloc"
version=2023.2.0
package="tbb (wheel)"
config="vendor's binaries"
compiler="vendor's"
preload=(libtbbmalloc.so.2 tbb.so)
build() {
    python3 -m pip download --quiet --no-deps --disable-pip-version-check -d "$dir" "tbb==$version"
    python3 -m zipfile -e "$dir"/tbb-*.whl "$dir/wheel"
    cp "$dir"/wheel/*/data/lib/libtbbmalloc.so.2 "$out/libtbbmalloc.so.2"
    cp "$dir"/wheel/*/data/lib/libtbbmalloc_proxy.so.2 "$so"
}
