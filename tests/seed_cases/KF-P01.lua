-- expect: ok ranks 24
return require "dialects.kempnerforge" {
  world = 24,
   model = { dim = 5120, n_layers = 40, n_heads = 40, n_kv_heads = 8, vocab_size = 128256, ffn_dim_multiplier =
    1.3, norm_type = "rmsnorm", activation = "silu", max_seq_len = 4096, rope_theta = 500000.0, tie_embeddings =
    false },
   train = { batch_size = 2, seq_len = 4096, max_steps = 1000, grad_accum_steps = 4, grad_clip_norm = 1.0, seed
    = 42, compile_model = false, activation_checkpointing = "full" },
   optimizer = { name = "adamw", lr = 0.0003, weight_decay = 0.1, betas = { 0.9, 0.95 }, eps = 1e-08, fused =
    true },
   scheduler = { name = "cosine", warmup_steps = 50, min_lr_ratio = 0.1 },
   data = { dataset_path = "/path/to/tokenized/dataset", file_pattern = "tokenized_*.bin", tokenizer_path =
    "meta-llama/Meta-Llama-3-8B", num_workers = 4, pin_memory = true, prefetch_factor = 2 },
   distributed = { dp_shard = 6, dp_replicate = 1, tp = 4, pp = 1, nccl_timeout_sec = 1200 },
   checkpoint = { dir = "checkpoints/13b_24gpu_validation", interval = 200, async_mode = "disabled", keep_last_n
    = 3 },
   metrics = { log_interval = 5, enable_wandb = true, wandb_project = "kempnerforge", wandb_run_name =
    "13b-24gpu-validation" },
   profiling = { enable = true, start_step = 5, end_step = 10, trace_dir = "profiler_traces/13b_validation" },
   eval = { enabled = true, interval = 200, steps = 20, hf_dataset_name = "wikitext", hf_dataset_config =
    "wikitext-103-raw-v1", hf_dataset_split = "validation" },
}
