#!/bin/sh
# The batch step of an allocation: keeps it for as long as the launcher shows signs of life, and ends it otherwise.
#   slurm_keeper.sh STATE_DIR SILENCE_S PERIOD_S MARK HET_GROUPS SCRATCH
# STATE_DIR/beat changes while the launcher lives; `end` in it ends the job. The job ends with this script, and every
# step of it. Seconds are counted on this node's clock from the last change seen, so clocks need not agree.
state=$1 silence=$2 period=$3 mark=$4 groups=$5 scratch=$6
if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ]; then
  echo "servemark-keeper: Slurm started job $SLURM_JOB_ID again; that would be a new attempt, so it ends"
  exit 3
fi
now() { cut -d. -f1 /proc/uptime; }
# Slurm ends the job (a node failed, its time is over, scancel): what this node holds of it goes too.
ended() {
  [ ! -e "$state/sweep.sh" ] || /bin/sh "$state/sweep.sh" "$mark" "$scratch"
  exit 0
}
trap ended TERM INT
echo "$SLURM_JOB_ID" >"$state/.keeper" && mv "$state/.keeper" "$state/keeper"
last='' seen=$(now)
while :; do
  beat=$(cat "$state/beat" 2>/dev/null) || beat=''
  case $beat in end*) exit 0 ;; esac
  if [ -n "$beat" ] && [ "$beat" != "$last" ]; then
    last=$beat seen=$(now)
  elif [ $(($(now) - seen)) -ge "$silence" ]; then
    echo "servemark-keeper: no sign of the launcher for $silence s: job $SLURM_JOB_ID ends"
    # Processes that left their step's process tree are found by their mark, on every node.
    group=0
    while [ "$group" -lt "$groups" ]; do
      set -- --overlap --mem=0 --ntasks-per-node=1 --export=PATH --immediate=10
      [ "$groups" -eq 1 ] || set -- "$@" "--het-group=$group"
      srun "$@" /bin/sh -c "$(cat "$state/sweep.sh")" sweep "$mark" "$scratch"
      group=$((group + 1))
    done
    rm -f "$state/beat" "$state/keeper" "$state/sweep.sh" "$state/request.json" "$state/job"
    rmdir "$state"
    exit 4
  fi
  sleep "$period" &
  wait $!
done
