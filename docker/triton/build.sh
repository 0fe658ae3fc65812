#!/bin/sh
# Builds Triton's C module ahead: build.sh FOLDER writes cuda_utils.so and the source it is of.
# Needs gcc, libc's and Python's headers and an installed triton; no CUDA driver.
set -eu
folder=$1
triton=$(python -c 'import importlib.util as u; print(u.find_spec("triton").submodule_search_locations[0])')
python=$(python -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
driver=$triton/backends/nvidia/driver.c

# Up to 3.6 Triton compiles another module, a launcher, for each signature of a kernel: one that is
# built ahead would not do.
if [ "$(grep -c 'compile_module_from_src(' "$triton/backends/nvidia/driver.py")" != 1 ]; then
    echo "This Triton compiles more than its driver module while it runs: it takes 3.7 or later." >&2
    exit 1
fi

# Linking wants a libcuda.so.1. The real one comes with the host's driver when a container starts.
stub=$(mktemp -d)
gcc -shared -x c /dev/null -o "$stub/libcuda.so.1" -Wl,-soname,libcuda.so.1
gcc -O3 -shared -fPIC "$driver" -o "$folder/cuda_utils.so" \
    -I"$triton/backends/nvidia/include" -I"$python" -L"$stub" -Wl,--no-as-needed -l:libcuda.so.1
cp "$driver" "$folder/cuda_utils.c"
rm -r "$stub"
