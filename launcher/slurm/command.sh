if [[ -s $code_file && ! $SLURM_ARRAY_TASK_ID ]]; then exit 0; fi # it was put back in the queue after the command had ended
# ALL, because with SBATCH_EXPORT=NONE srun would drop what was set above.
srun --export=ALL --nodes=1 --ntasks=1 "${step_options[@]}" "${container[@]}" "${words[@]}"
code=$?
if ((code == 0)) && [[ $SLURM_ARRAY_TASK_ID ]]; then exit 0; fi # the merge tells of the parts that have succeeded
leave "$code"
