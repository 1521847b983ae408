# ranks.sh - for shell tests, after lib.sh: one command on several processes, with torchrun's variables.

unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT TENON_DIR TENON_IFACE TORCHELASTIC_RUN_ID
unset SLURM_PROCID SLURM_STEP_NUM_TASKS PMIX_NAMESPACE PMIX_RANK
ranks_port=$((22000 + $$ % 8000))

# ranks N COMMAND ARGUMENT...: sets rc (that of the first rank that failed, else 0), out and err (of rank 0), command.
ranks()
{
    local n=$1 r code pids=()

    shift
    ranks_port=$((ranks_port + 20))
    for ((r = 0; r < n; r++)); do
        env RANK=$r WORLD_SIZE=$n LOCAL_RANK=$r LOCAL_WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 MASTER_PORT=$ranks_port \
            timeout -k 1 -s KILL 100 "$@" </dev/null >"rank.$r.out" 2>"rank.$r.err" &
        pids+=($!)
    done
    rc=0
    for r in "${!pids[@]}"; do
        code=0
        wait "${pids[$r]}" || code=$?
        [ $code -eq 0 ] || [ $rc -ne 0 ] || rc=$code
    done
    out=$(cat rank.0.out) err=$(cat rank.0.err)
    command="$* (on $n ranks)"
}
