# SPDX-License-Identifier: MIT
# bash: arrays, substitutions, functions, here documents, many subshells and pipes.
scale=${1:-1}
declare -A table
for ((i = 0; i < 20000 * scale; i++)); do
    key=$(((i * 7919) % 997))
    table[$key]="${table[$key]:0:200}$i,"
done
sum=0
for key in "${!table[@]}"; do
    ((sum = (sum + key * ${#table[$key]}) % 1000003))
done
echo "$sum ${#table[@]}"
text=""
for ((i = 0; i < 3000 * scale; i++)); do text+="word$i "; done
echo "${#text} ${text//word/w}" | cksum
for ((i = 0; i < 150 * scale; i++)); do
    out=$(echo "$i ${text:i:40}" | tr a-z A-Z | { read -r first rest; echo "$first/${rest#* }"; })
    results+=("$out")
done
printf '%s\n' "${results[@]}" | sort | cksum
recurse() {
    (($1 == 0)) && return 0
    local kept="$1-${text:0:500}"
    recurse $(($1 - 1))
    echo "${#kept}"
}
recurse 300 | cksum
mapfile -t lines < <(for ((i = 0; i < 5000 * scale; i++)); do echo "line $i ${i//1/one}"; done)
echo "${#lines[@]} ${lines[@]: -1}"
[[ ${lines[17]} =~ ^line\ ([0-9]+) ]] && echo "${BASH_REMATCH[1]}"
( (sleep 0.05; exit 3) & wait $!; echo "status $?" )
echo done
