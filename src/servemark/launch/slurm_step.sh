# What a step runs before its program: its folder, its share of the GPUs, one line that says where it runs.
#   sh -c THIS servemark-step WORK_DIR GPUS PROGRAM ARGUMENTS…
# GPUS: positions among the GPUs that Slurm gives the step (`0,2`), `none`, or `all`. The program replaces this shell,
# so signals and its exit status are its own.
dir=$1 gpus=$2
shift 2
exec 2>&1 </dev/null # slurmd gives a pipe that has ended, which a program may take for its starter's end
if [ -n "$dir" ]; then
  { (umask 077 && mkdir -p -- "$dir") && cd -- "$dir"; } || { echo 'servemark-step: refused cwd'; exit 126; }
fi
if [ "$gpus" != all ]; then
  for name in CUDA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ZE_AFFINITY_MASK GPU_DEVICE_ORDINAL; do
    eval "given=\${$name-}"
    [ -n "$given" ] || [ "$name" = CUDA_VISIBLE_DEVICES ] || continue
    chosen=''
    if [ "$gpus" != none ]; then
      for position in $(echo "$gpus" | tr ',' ' '); do
        device=$position
        [ -z "$given" ] || device=$(echo "$given" | cut -d, -f$((position + 1)))
        [ -n "$device" ] || { echo "servemark-step: refused gpus $given"; exit 126; }
        chosen="$chosen${chosen:+,}$device"
      done
    fi
    export "$name=$chosen"
  done
fi
command -v -- "$1" >/dev/null 2>&1 || { echo 'servemark-step: refused program'; exit 127; }
echo "servemark-step: started $SLURM_JOB_ID.$SLURM_STEP_ID on ${SLURMD_NODENAME:-$(hostname)} pid $$"
exec "$@"
