-- DeepSpeed ZeRO with Hugging Face's models: hooks gather the parameters of each module. Sizes are
-- the defaults of deepspeed/runtime/zero/config.py, under their names there. Gradients are bf16 like
-- the weights. Host times are FSDP1's, because no row of DeepSpeed is marked for fits. makes_states:
-- deepspeed/runtime/zero/stage3.py and stage_1_and_2.py call initialize_optimizer_states in their
-- constructors. That function takes a step in which all gradients are zero.

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
