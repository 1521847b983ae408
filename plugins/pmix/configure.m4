TN_PLUGIN_SWITCH([pmix], [places from PMIx, as mpirun and srun --mpi=pmix have it],
[PKG_CHECK_MODULES([PMIX], [pmix >= 3], [tn_found="PMIx `$PKG_CONFIG --modversion pmix`"],
    [tn_missing="there is no pmix.pc (on Debian: apt-get install libpmix-dev)"])])
