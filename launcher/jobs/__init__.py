"""Jobs on any cluster: the protocol of a cluster, its jobs, the record of submitted jobs, how jobs end."""

from launcher.jobs.batch import BatchCluster
from launcher.jobs.cluster import Cluster
from launcher.jobs.end import End, Ending, ending_of
from launcher.jobs.job import Array, Job, JobState, Single, Training

__all__ = ["Array", "BatchCluster", "Cluster", "End", "Ending", "Job", "JobState", "Single", "Training", "ending_of"]
