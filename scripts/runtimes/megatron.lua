-- Megatron-Core with TransformerEngine: norms, rope, swiglu and cross-entropy are fused, and attention
-- is cuDNN's. Products add gradients directly to fp32 accumulators.
--
-- SwiGLU: one kernel in each direction (core/fusions/fused_bias_swiglu.py). It saves its inputs and
-- computes silu again. The profile counts the traffic of the plan's op mul: three tensors in the forward
-- pass, and six in the backward pass. (In the backward pass, the kernel moves only five.)
--
-- q, k and v: Transformer Engine copies the values, because their strides differ from those of the
-- rotated keys (dot_product_attention/utils.py: get_qkv_layout). So the product of q, k and v is not kept.
--
-- Loss: it subtracts, exponentiates and multiplies in place. So it has one tensor, a softmax in fp32,
-- and its gradient overwrites this tensor (core/tensor_parallel/cross_entropy.py).
--
-- 8 bits with delayed scaling: the kernels of norms and swiglu write three of a block's four operands in
-- 8 bits. Four of a block's seven gradients are quantised, some by swiglu's kernel, and each together
-- with its transpose. So only half of the kernels and bytes of the op `quantise` count. In the forward
-- pass, a linear quantises its input, and keeps only this form for the gradient of its weight (Transformer
-- Engine, pytorch/module/linear.py and layernorm_linear.py: _linear_forward_impl, _LayerNormLinear.forward).
-- The projection after attention keeps attention's output itself, because attention keeps it, too
-- (core/transformer/attention.py: set_save_original_input).

-- kind: source; the framework's modules and kernels, named at the head of the script
local one, half = { kernels = 1, passes = 1 }, { kernels = 0.5, passes = 0.5 }
-- A mixer of Mamba-2 has one convolution for x, B and C, and the kernels of mamba_ssm's
-- ssd_combined.py. The scan has 5 kernels in the forward pass. It has 14 in the backward pass: 4 of
-- the forward pass again, and 10 others. The mixer saves its input and the scan's output
-- (MambaSplitConv1dScanCombinedFn), and computes the convolutions and the step sizes again.
local part, remade_part = { kernels = 0, passes = 1 }, { kernels = 0, passes = 1, remade = true }
local ops = { rmsnorm = one, rmsnorm_grad = one, rope = one, rope_grad = one,
  silu = { kernels = 0, passes = 0, remade = true }, silu_grad = { kernels = 0, passes = 0 },
  conv_heads = { kernels = 1, passes = 1, remade = true },
  conv_groups = remade_part, conv_groups_grad = part, step_size = remade_part, step_size_grad = part,
  state_scan = { kernels = 5, passes = 1 }, state_scan_grad = { kernels = 14, passes = 1 }, state_scan_shared = part,
  -- `calls` counts PyTorch's functions that the host calls beside the op itself. Autograd calls fewer for the
  -- gradients, because indices and masks have none.
  -- Router (core/transformer/moe/router.py, moe_utils.py): a softmax, a cast, and two masks of four calls each.
  -- Auxiliary loss: a softmax, topk and a mask again, sums, products, and the record of the loss.
  -- Dispatcher that gathers tokens (token_dispatcher.py): it takes the parts of its own experts, sums them, and
  -- sorts the tokens and their weights. The sum over experts takes zeros, index_add and casts.
  topk = { kernels = 1, passes = 1, calls = 9 }, route = { kernels = 0, passes = 1 }, route_grad = { kernels = 0, passes = 1, calls = 4 },
  balance = { kernels = 0, passes = 1, calls = 14 }, balance_grad = { kernels = 0, passes = 1, calls = 5 },
  slots = { kernels = 1, passes = 1, calls = 5, waits = true },
  dispatch = { kernels = 1, passes = 1, calls = 8 }, dispatch_grad = { kernels = 1, passes = 1, calls = 5 },
  combine = { kernels = 1, passes = 1, calls = 4 }, combine_grad = { kernels = 1, passes = 1, calls = 1 },
  -- The activation between the two products of an expert also multiplies by the router's weights
  -- (core/transformer/moe/experts.py). The sum over experts therefore needs no gradient for these
  -- weights, and the output of the second product is not kept.
  combine_weights = { kernels = 1, passes = 1, reads_none = true },
  xent_max = { kernels = 2, passes = 3, saved = 4 }, xent_pick = { kernels = 1, passes = 0, waits = true },
  xent_sumexp_grad = { kernels = 2, passes = 5, in_place = "backward" }, quantise = half }
-- Experts that drop no token, and routers with sigmoids, make the same calls.
for name, like in pairs { dispatch_uneven = "dispatch", dispatch_uneven_grad = "dispatch_grad", combine_uneven = "combine",
  combine_uneven_grad = "combine_grad", topk_biased = "topk", route_sigmoid = "route", route_sigmoid_grad = "route_grad" } do
  ops[name] = ops[like]
end
return require "runtimes.eager" { name = "megatron", attention = "cudnn", ops = ops, delayed = true, waits_messages = true,
  sequence_first = true, -- [s, b, h] (core/tensor_parallel/mappings.py: _gather_along_first_dim)
  keeps_quantised = true, holds_gradients = true,  -- gradients are reduced in place (param_and_grad_buffer.py)
  -- With cp, Transformer Engine calls attention once for each rank of cp. Each call launches three
  -- kernels: attention, the correction of the log-sum-exp, and the correction of the output; the
  -- corrections are compiled. In the backward pass, a call launches four: the gradient, and the
  -- sums of the gradients of queries, keys and values (context_parallel.py:
  -- AttnFuncWithCPAndKVP2P).
  ring_kernels = 3, ring_grad_kernels = 4 }
