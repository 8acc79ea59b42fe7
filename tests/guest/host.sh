# A host of ours and Linux' own NVMe driver: `bothends run` on a drive that the kernel has, in the guest of
# scripts/linux-guest --host. Arguments: address, port and NQN of the target, whose media are the files of /data.
set -eu
address=$1 port=$2 nqn=$3
uuid=11111111-2222-3333-4444-555555555555

step() { echo "GUEST-STEP $*"; }
fail() {
    echo "GUEST-FAILED $*"
    exit 1
}

# patiently COMMAND...: until it succeeds, a minute at most.
patiently() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ "$tries" -lt 300 ] || fail "$* does not come to pass"
        sleep 0.2
    done
}

bothends="bothends run --data /data --recipe imagenet-train --batch-size 8 --workers 1 --digest"

# run WHAT OUTPUT OPTION...: an epoch whose stream, or content in any order, is that of a run without a device.
run() {
    what=$1 said=$2
    shift 2
    $bothends "$@" >"$said" 2>&1 || fail "bothends run $* ends with $?: $(tail -5 "$said")"
    wanted=$(head -1 /expected | grep -o "$what [0-9a-f]*")
    grep -q "^epoch 0: .*$wanted" "$said" || fail "bothends run $* has another $what than $wanted: $(tail -5 "$said")"
}

# made OUTPUT: how many batches the device made.
made() { awk '$1 == "csd" { print $6 + 0 }' "$1"; }

step refuse
if $bothends --csd nvme:///dev/ng0n1 --require-devices >/said 2>&1; then
    fail "a drive that is not there was used"
fi
grep -q 'there is no `/dev/ng0n1`; connect the drive' /said || fail "no remedy for a missing drive: $(cat /said)"

step connect
nvme connect -t tcp -a "$address" -s "$port" -n "$nqn" -i 2 -c 1 \
    -q "nqn.2014-08.org.nvmexpress:uuid:$uuid" -I "$uuid"
nodes() { [ "$(ls /dev | grep -c '^ng0n')" -eq 3 ]; }
patiently nodes
echo "GUEST-NOTE nodes: $(for node in /dev/ng0n*; do nvme get-ns-id "$node" 2>/dev/null | tr '\n' ' '; done)"

# Every node of the drive leads to all of it; what one run has set up is gone before the next.
for node in /dev/ng0n1 /dev/ng0n2 /dev/ng0n3 /dev/nvme0; do
    step "ordered by $node"
    run stream /ordered --csd "nvme://$node" --require-devices
done

step csd
run content /csd --csd nvme:///dev/ng0n1 --require-devices --strategy csd
[ "$(made /csd)" -gt 0 ] || fail "the device made no batch: $(cat /csd)"
echo "GUEST-NOTE the device made $(made /csd) batches"

step block
if $bothends --csd "nvme:///dev/$(ls /dev | grep '^nvme0n' | head -1)" \
    --require-devices >/said 2>&1; then
    fail "a block device was used"
fi
grep -q "is a block device, which does not accept NVMe commands; name" /said || fail "no remedy for a block device: $(cat /said)"

# A run that is killed leaves its sets of ranges in the controller.
step killed
$bothends --epochs 1000 --strategy csd --csd nvme:///dev/ng0n1 --require-devices \
    --events /events >/killed 2>&1 &
killed=$!
# is_at_work EVENTS: a run has begun to make batches.
is_at_work() { [ -e "$1" ] && [ "$(wc -l <"$1")" -gt 30 ]; }
patiently is_at_work /events
run content /beside --csd nvme:///dev/ng0n1
grep -q "another process of this machine uses it" /beside || fail "two processes use the drive: $(cat /beside)"
kill -9 "$killed"
wait "$killed" 2>/dev/null || true
run content /after --csd nvme:///dev/ng0n1 --require-devices --strategy csd
[ "$(made /after)" -gt 0 ] || fail "the device made no batch after a run that was killed: $(cat /after)"

# Linux ends what is under way, connects again, and the device takes part again.
step reset
$bothends --epochs "$(wc -l </expected)" --csd nvme:///dev/ng0n1 --require-devices --events /events2 >/reset 2>&1 &
running=$!
patiently is_at_work /events2
nvme reset /dev/nvme0
wait "$running" || fail "a run does not survive a reset: $(tail -5 /reset)"
grep '^epoch [0-9]*: stream' /reset >/streams
cmp /streams /expected || fail "the streams are others after a reset: $(tail -20 /reset)"

step end
nvme disconnect-all
echo "GUEST-DONE"
