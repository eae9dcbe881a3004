"""A job on whatever cluster: what a cluster is, what it is asked to run, what was submitted, what the end means."""

from launcher.jobs.batch import BatchCluster
from launcher.jobs.cluster import Cluster
from launcher.jobs.end import End, Ending, ending_of
from launcher.jobs.job import Job, JobState, Preparation, Training

__all__ = ["BatchCluster", "Cluster", "End", "Ending", "Job", "JobState", "Preparation", "Training", "ending_of"]
