-- expect: ok ranks 32
return require "dialects.kempnerforge" {
  world = 32,
  model = { dim = 6144, n_layers = 56, n_heads = 48, n_kv_heads = 8, vocab_size = 128256, ffn_dim_multiplier = 1.3,
    norm_type = "rmsnorm", activation = "silu", max_seq_len = 4096, rope_theta = 500000.0, tie_embeddings = false },
  train = { batch_size = 1, seq_len = 4096, max_steps = 20, grad_accum_steps = 8, grad_clip_norm = 1.0, seed = 42,
    compile_model = false, activation_checkpointing = "full" },
  optimizer = { name = "adamw", lr = 2e-4, weight_decay = 0.1, betas = { 0.9, 0.95 }, eps = 1e-8, fused = true },
  scheduler = { name = "cosine", warmup_steps = 50, min_lr_ratio = 0.1 },
  data = { dataset_path = "tokenized/meta-llama-3/default", file_pattern = "tokenized_*.bin", num_workers = 0,
    pin_memory = true, prefetch_factor = 2 },
  distributed = { dp_shard = 4, dp_replicate = 1, tp = 4, pp = 2, pp_schedule = "1f1b", nccl_timeout_sec = 1200 },
  checkpoint = { dir = "checkpoints/multinode_29b", interval = 100, async_mode = "disabled", keep_last_n = 2 },
  metrics = { log_interval = 1, enable_wandb = false, enable_tensorboard = false },
  profiling = { enable = false, start_step = 5, end_step = 8 },
}
