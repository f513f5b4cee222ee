# Kill every process of this node that carries a run's mark in its environment, also those that left their step; then
# remove the run's scratch folder.
mark=$1 scratch=$2 round=0
while [ "$round" -lt 50 ]; do
  found=''
  for file in $(grep -lsz "^SERVEMARK_STEP_MARK=$mark\$" /proc/[0-9]*/environ); do
    pid=${file#/proc/}
    kill -KILL "${pid%/environ}" 2>/dev/null && found="$found ${pid%/environ}"
  done
  if [ -z "$found" ]; then
    case $scratch in /*/servemark-"$mark") rm -rf -- "$scratch" ;; esac
    exit 0
  fi
  echo "servemark-sweep: $(hostname): killed$found"
  round=$((round + 1))
  sleep 0.1
done
exit 1
