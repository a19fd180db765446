-- KempnerForge: FSDP2 and DTensor as torchtitan has them (whose host times are taken), whole models
-- compiled where asked for.
return require "runtimes.eager" { name = "kempnerforge", fitted = "torchtitan",
  reports = "allocated" }
