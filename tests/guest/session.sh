# What a Linux host does with the device, with stock nvme-cli: runs in the guest of scripts/linux-guest.
# Arguments: address, port and NQN of the target.
set -eu
address=$1 port=$2 nqn=$3
uuid=11111111-2222-3333-4444-555555555555
host="-q nqn.2014-08.org.nvmexpress:uuid:$uuid -I $uuid"

step() { echo "GUEST-STEP $*"; }
fail() {
    echo "GUEST-FAILED $*"
    exit 1
}

step discover
nvme discover -t tcp -a "$address" -s "$port" $host >/said
for line in "trtype: *tcp" "adrfam: *ipv4" "subtype: *nvme subsystem" "trsvcid: *$port" "subnqn: *$nqn" "traddr: *$address"; do
    grep -q "^$line *\$" /said || fail "discovery does not say \"$line\": $(cat /said)"
done

step connect
nvme connect -t tcp -a "$address" -s "$port" -n "$nqn" -i 2 $host

# The numbers in the names of the nodes are not those of the namespaces: 6.12 mixes them.
node_of() {
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        for node in $1; do
            [ -e "$node" ] || continue
            nvme get-ns-id "$node" 2>/dev/null | grep -q "namespace-id:$2\$" && echo "$node" && return
        done
        sleep 0.1
    done
    fail "there is no node for namespace $2"
}

step namespaces
blocks=$(node_of "/dev/ng0n*" 1)
memory=$(node_of "/dev/ng0n*" 2)
programs=$(node_of "/dev/ng0n*" 3)
disk=$(node_of "/dev/nvme0n*" 1)
nvme ns-descs /dev/nvme0 -n 3 >/said 2>&1 || true
grep -qi "csi.*4" /said || fail "namespace 3 does not say command set 4: $(cat /said)"
nvme id-ctrl /dev/nvme0 | grep -q "bothends firmware-sim" || fail "the controller has another model"
nvme smart-log /dev/nvme0 >/dev/null

step blocks
dd if="$disk" of=/read bs=4096 count=64 2>/dev/null
[ "$(md5sum </read)" = "$(cat /expected.md5)" ] || fail "64 blocks differ"

step memory
echo hello-slm-01234567890123 >/written
nvme io-passthru "$memory" -o 0x05 -n 2 --cdw10=4096 --cdw12=24 -l 24 -w -i /written >/dev/null
nvme io-passthru "$memory" -o 0x02 -n 2 --cdw10=4096 --cdw12=24 -l 24 -r -b >/read
head -c 24 /written >/expected
cmp /read /expected || fail "memory does not hold what was written"

# A copy of block 0 to byte 8192: namespace 1, first block 0, one block (0-based).
step copy
{ printf '\001\000\000\000'; head -c 28 /dev/zero; } >/source
nvme io-passthru "$memory" -o 0x01 -n 2 --cdw2=4096 --cdw10=8192 --cdw12=0x200 -l 32 -w -i /source >/dev/null

# Its first 32 bytes are a range: namespace 2, 32 bytes, from byte 2000h on.
step ranges
{ printf '\002\000\000\000\040\000\000\000\000\040\000\000\000\000\000\000'; head -c 16 /dev/zero; } >/range
nvme admin-passthru /dev/nvme0 -o 0x89 -n 3 --cdw11=1 -l 32 -w -i /range >/said 2>&1
grep -q "00000001" /said || fail "the set of ranges is not number 1: $(cat /said)"

# Program 0 with set 1 gives the CRC-32C of the range: that of the bytes 0 to 31 is in RFC 3720.
step execute
nvme io-passthru "$programs" -o 0x01 -n 3 --cdw2=0x00010000 >/said 2>&1
grep -qi "46dd794e" /said || fail "the program's result is another: $(cat /said)"
if nvme io-passthru "$programs" -o 0x01 -n 3 --cdw2=0x00010007 >/said 2>&1; then
    fail "a program that is not there ran"
fi
grep -qi "0x4196\|0x196" /said || fail "the status is not No Program: $(cat /said)"

# Linux ends all queues, disables the controller, and connects again; the set of ranges is gone with what was before.
step reset
nvme reset /dev/nvme0
dd if="$disk" of=/read bs=4096 count=64 iflag=direct 2>/dev/null
[ "$(md5sum </read)" = "$(cat /expected.md5)" ] || fail "64 blocks differ after a reset"
if nvme admin-passthru /dev/nvme0 -o 0x89 -n 3 --cdw10=0x00010001 >/said 2>&1; then
    fail "a set of ranges outlived a reset"
fi

# refuses STATUS COMMAND...: the command fails with this status, as a number of nvme-cli's.
refuses() {
    status=$1
    shift
    if "$@" >/said 2>&1; then fail "$* did what it must not"; fi
    grep -qi "$status" /said || fail "$* does not say $status: $(cat /said)"
}

# A device that runs WebAssembly is given a program at index 5, of type C0h: in two commands, the second from byte
# 512 on. It counts the bytes of block 0, which is at byte 8192 of the memory, and writes 2048 bytes at 16384.
if [ -e /histogram.wasm ]; then
    size=$(wc -c </histogram.wasm)
    head -c 512 /histogram.wasm >/first
    tail -c +513 /histogram.wasm >/second
    load="nvme admin-passthru /dev/nvme0 -o 0x85 -n 3 --cdw10=0x00c00005 --cdw11=$size"
    unload="nvme admin-passthru /dev/nvme0 -o 0x85 -n 3 --cdw10=0x01000005"
    activate="nvme admin-passthru /dev/nvme0 -o 0x88 -n 3 --cdw10=0x00010005"
    deactivate="nvme admin-passthru /dev/nvme0 -o 0x88 -n 3 --cdw10=0x00000005"
    execute="nvme io-passthru $programs -o 0x01 -n 3 --cdw2=0x00010005"

    step load
    $load --cdw14=512 --cdw15=0 -l 512 -w -i /first >/dev/null
    refuses 18e $activate
    rest=$((size - 512))
    $load --cdw14=$rest --cdw15=512 -l $rest -w -i /second >/dev/null
    refuses 198 $execute

    step activate
    $activate >/dev/null
    refuses 199 $unload
    {
        printf '\002\000\000\000\000\020\000\000\000\040\000\000\000\000\000\000'
        head -c 16 /dev/zero
        printf '\002\000\000\000\000\010\000\000\000\100\000\000\000\000\000\000'
        head -c 16 /dev/zero
    } >/ranges
    nvme admin-passthru /dev/nvme0 -o 0x89 -n 3 --cdw11=2 -l 64 -w -i /ranges >/said 2>&1
    grep -q "00000001" /said || fail "the set of ranges is not number 1: $(cat /said)"

    step run
    $execute >/said 2>&1
    grep -qi "00001000" /said || fail "the program has not counted 4096 bytes: $(cat /said)"
    nvme io-passthru "$memory" -o 0x02 -n 2 --cdw10=16384 --cdw12=2048 -l 2048 -r -b >/read
    cmp /read /expected.counts || fail "the counts differ"

    # From byte 5000 on there is nothing to count.
    refuses 0x4002 $execute --cdw10=5000

    step revoke
    $deactivate >/dev/null
    refuses 198 $execute
    $unload >/dev/null
    refuses 196 $execute
    nvme admin-passthru /dev/nvme0 -o 0x89 -n 3 --cdw10=0x00010001 >/dev/null 2>&1
fi

step end
nvme disconnect-all
echo "GUEST-DONE"
