-- DeepSpeed ZeRO with Hugging Face's models: hooks gather the parameters of each module. Sizes are
-- the defaults of deepspeed/runtime/zero/config.py; the comments give their names there. Gradients
-- have the type of the weights. Host times are FSDP1's, because no row of DeepSpeed may be used for
-- fits. makes_states is false, because deepspeed/runtime/zero/stage3.py and stage_1_and_2.py make
-- the states in their constructors: initialize_optimizer_states takes a step in which all gradients
-- are zero.

-- kind: documented; defaults of deepspeed/runtime/zero/config.py
return require "runtimes.eager" { name = "deepspeed", fitted = "fsdp1",
  bucket_elements = 5e8,    -- called reduce_bucket_size in DeepSpeed
  prefetch_elements = 5e7,  -- called stage3_prefetch_bucket_size
  live_elements = 1e9,      -- called stage3_max_live_parameters
  reuse_elements = 1e9,     -- called stage3_max_reuse_distance
  holds_arguments = true,
  makes_states = false,
  persist_elements = 1e5,   -- called stage3_param_persistence_threshold
}
