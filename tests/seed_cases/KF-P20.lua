-- expect: ok ranks 8
return require "dialects.kempnerforge" {
  world = 8,
  model = { dim = 4096, n_layers = 32, n_heads = 32, n_kv_heads = 8, vocab_size = 32000, ffn_dim_multiplier = 1.3,
    max_seq_len = 4096 },
  train = { batch_size = 8, seq_len = 4096, max_steps = 100000, grad_accum_steps = 4, grad_clip_norm = 1.0, seed = 42,
    compile_model = true, activation_checkpointing = "full" },
  optimizer = { name = "adamw", lr = 3e-4, weight_decay = 0.1, betas = { 0.9, 0.95 }, eps = 1e-8, fused = true },
  scheduler = { name = "cosine", warmup_steps = 2000, min_lr_ratio = 0.1 },
  data = { num_workers = 4, pin_memory = true, prefetch_factor = 2 },
  distributed = { dp_shard = -1, dp_replicate = 1, tp = 1, pp = 1 },
  checkpoint = { dir = "checkpoints", interval = 1000, async_mode = "async_with_pinned_mem", keep_last_n = 3 },
  metrics = { log_interval = 10, enable_wandb = true, wandb_project = "kempnerforge" },
  profiling = { enable = false, start_step = 5, end_step = 8 },
}
