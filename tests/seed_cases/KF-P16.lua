-- expect: ok ranks 8
return require "dialects.kempnerforge" {
  world = 8,
   model = { dim = 2048, n_layers = 24, n_heads = 16, n_kv_heads = 4, vocab_size = 128256, ffn_dim_multiplier =
    1.3, max_seq_len = 4096, rope_theta = 500000.0, num_experts = 8, moe_top_k = 2, moe_frequency = 1,
    moe_router = "softmax_topk", moe_aux_loss_weight = 0.01, moe_capacity_factor = 0.0 },
   train = { batch_size = 10, seq_len = 4096, max_steps = 20, grad_accum_steps = 1, grad_clip_norm = 1.0,
    compile_model = false, mixed_precision = "bf16", activation_checkpointing = "full" },
   optimizer = { name = "adamw", lr = 0.0003, weight_decay = 0.1, betas = { 0.9, 0.95 }, eps = 1e-08, fused =
    true },
   scheduler = { name = "cosine", warmup_steps = 5, min_lr_ratio = 0.1 },
   data = { dataset_path = "/path/to/tokenized/dataset", file_pattern = "tokenized_*.bin", num_workers = 4,
    pin_memory = true, prefetch_factor = 2 },
   distributed = { tp = 4, dp_shard = 2, nccl_timeout_sec = 600 },
   checkpoint = { dir = "checkpoints/moe_8gpu_stress", interval = 1000, keep_last_n = 1 },
   metrics = { log_interval = 1, enable_wandb = false, enable_tensorboard = false },
}
