"""All the work of mdk-tui, without a screen: everything here can be used from Python or the command line.

A module imports only from its own row and those above it (a test reads this):

    errors, text, ticks, files, resources   for the user's eyes; cleaned text; numbers in words; files
    programs, disks                         other programs, asked short questions; what a disk and its quotas still take
    settings, workspace                     mdk.toml, and where things are
    megatron                                what a log says: events, series, diagnosis; what a data set holds
    models                                  Megatron's arguments, presets, checks of a layout, estimates
    runs                                    a run on disk: plan, folder, state, checkpoints, what going on from it means
    telemetry                               readings of GPUs and hosts
    tracking                                MLflow, TensorBoard
    launch                                  a plan becomes a job: local, mpirun, Slurm, the supervisor that owns it
    setup                                   the steps from a bare server to data
    nodes                                   the nodes of a launch: asked, judged, tried together
    inference                               the text server and its clients
    demo                                    a tiny GPT and its server: programs, which nothing imports
"""
