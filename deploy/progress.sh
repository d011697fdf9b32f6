# show_progress: reads what ninja prints and says how far it is: a line that changes on a terminal, else a line every 15 seconds.
# What is left is estimated from the objects done so far. Nothing else is printed; keep the whole output with tee.
# shellcheck shell=bash

show_progress() {
  local line now began told=0 of left text='' objects=0
  printf -v began '%(%s)T' -1
  while IFS= read -r line; do
    [[ "$line" =~ ^\[([0-9]+)/([0-9]+)\] ]] || continue
    objects="${BASH_REMATCH[1]}" of="${BASH_REMATCH[2]}"
    printf -v now '%(%s)T' -1
    left=$(((now - began) * (of - objects) / objects))
    text="    $objects of $of steps done, about $((left / 60)) min $((left % 60)) s left"
    if [ -t 1 ]; then
      printf '\r%s\e[K' "$text"
    elif [ $((now - told)) -ge 15 ]; then
      printf '%s\n' "$text"
      told="$now"
    fi
  done
  if [ -t 1 ] && [ -n "$text" ]; then printf '\r\e[K'; fi
}
