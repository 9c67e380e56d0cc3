#!/bin/bash
#SBATCH --job-name=study
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --gpus-per-node=8
#SBATCH --time=12:00:00
#SBATCH --requeue
set -euo pipefail

source "$HOME/hotswap/.venv/bin/activate"      # an environment that all nodes see
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

# On every node: starts Ray there, runs the command on the head once all nodes are up, and stops Ray when it has ended.
# Twenty minutes before the job's time is over, units are given up; the next job goes on from their last checkpoints.
srun ray symmetric-run --address "$head:6379" --min-nodes "$SLURM_JOB_NUM_NODES" \
    --num-cpus "$SLURM_CPUS_PER_TASK" --num-gpus 8 -- \
    hotswap study run paper --out "$HOME/studies/paper" --device cuda --precision tf32 --stop-after 700 \
    --on ray --address auto --per-unit gpu=1,cpu=2 --storage "$SCRATCH/paper"
