#!/bin/bash
@DIRECTIVES@
#
# Made by zeromt from its template launcher/slurm/command.sh: one command, whose exit code is left in a file.

words=(@WORDS@)
modules=(@MODULES@)
sources=(@SOURCES@)
environment=(@ENVIRONMENT@)
container=(@CONTAINER@)
srun_options=(@SRUN_OPTIONS@)
stdout=@STDOUT@

say() {
    printf 'zeromt: job %s: %s\n' "$SLURM_JOB_ID" "$*" >&2
}

@SITE@

if [[ -s $ended ]]; then exit 0; fi # it was put back in the queue after the command had ended
if [[ $stdout ]]; then exec >"$stdout" || exit 1; fi
# ALL, because with SBATCH_EXPORT=NONE srun would drop what was set above.
srun --export=ALL --nodes=1 --ntasks=1 "${srun_step[@]}" "${srun_options[@]}" "${container[@]}" "${words[@]}"
code=$?
echo "$code $SLURM_JOB_ID" >"$ended"
exit "$code"
