#!/bin/bash
@DIRECTIVES@
#
# Made by `zeromt launch slurm --array` from its template launcher/slurm/array.sh: a part of a command, or the parts'
# merge.

words=(@WORDS@)
python=@PYTHON@
modules=(@MODULES@)
sources=(@SOURCES@)
environment=(@ENVIRONMENT@)
container=(@CONTAINER@)
srun_options=(@SRUN_OPTIONS@)
parts=@PARTS@

say() {
    printf 'zeromt: job %s: %s\n' "$SLURM_JOB_ID" "$*" >&2
}

@SITE@

if [[ $SLURM_ARRAY_TASK_ID ]]; then share=(--part "$((SLURM_ARRAY_TASK_ID - ${SLURM_ARRAY_TASK_MIN:-1} + 1))/${SLURM_ARRAY_TASK_COUNT:-$parts}"); else share=(--merge); fi
# ALL, because with SBATCH_EXPORT=NONE srun would drop what was set above.
srun --export=ALL --nodes=1 --ntasks=1 "${srun_step[@]}" "${srun_options[@]}" \
    "${container[@]}" "$python" -P -m zeromt "${words[0]}" "${share[@]}" "${words[@]:1}"
code=$?
if [[ $ended ]] && ((code || !SLURM_ARRAY_TASK_ID)); then
    echo "$code ${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}" >"$ended" # a part only if it has failed
fi
exit "$code"
