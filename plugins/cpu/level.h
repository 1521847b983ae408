/* level.h - names that exist once per CPU level.
 *
 * Every kernel is compiled several times, for x86-64-v2, v3 and v4 (elsewhere once, generic), into one
 * plugin. The build says -DTN_LEVEL=v3; functions that cross files then end in _v3, and the levels meet only
 * in the tables of plugin.c. Static functions need no such care. */
#ifndef TENON_CPU_LEVEL_H
#define TENON_CPU_LEVEL_H
#ifndef TN_LEVEL
#define TN_LEVEL generic
#endif
#define TN_JOIN_(a, b) a##_##b
#define TN_JOIN(a, b) TN_JOIN_(a, b)
#define TN_AT_LEVEL(name) TN_JOIN(name, TN_LEVEL)

#define tn_cpu_level TN_AT_LEVEL(tn_cpu_level)
#define tn_cpu_program_make TN_AT_LEVEL(tn_cpu_program_make)
#define tn_cpu_program_run TN_AT_LEVEL(tn_cpu_program_run)
#define tn_cpu_idioms TN_AT_LEVEL(tn_cpu_idioms)
#define tn_cpu_elementwise_make TN_AT_LEVEL(tn_cpu_elementwise_make)
#define tn_cpu_update_make TN_AT_LEVEL(tn_cpu_update_make)
#define tn_cpu_reduce_make TN_AT_LEVEL(tn_cpu_reduce_make)
#define tn_cpu_through_f32 TN_AT_LEVEL(tn_cpu_through_f32)
#define tn_cpu_philox_run TN_AT_LEVEL(tn_cpu_philox_run)
#define tn_cpu_mm_plan TN_AT_LEVEL(tn_cpu_mm_plan)
#define tn_cpu_product_run TN_AT_LEVEL(tn_cpu_product_run)
#define tn_cpu_product_floats TN_AT_LEVEL(tn_cpu_product_floats)
#define tn_cpu_mm_part TN_AT_LEVEL(tn_cpu_mm_part)
#define tn_cpu_attn_prepare TN_AT_LEVEL(tn_cpu_attn_prepare)
#define tn_cpu_attn_stride TN_AT_LEVEL(tn_cpu_attn_stride)
#define tn_cpu_prepare_einsum TN_AT_LEVEL(tn_cpu_prepare_einsum)
#define tn_cpu_prepare_sum TN_AT_LEVEL(tn_cpu_prepare_sum)
#define tn_cpu_prepare_rowmax TN_AT_LEVEL(tn_cpu_prepare_rowmax)
#define tn_cpu_prepare_sumsq TN_AT_LEVEL(tn_cpu_prepare_sumsq)
#define tn_cpu_prepare_expr TN_AT_LEVEL(tn_cpu_prepare_expr)
#define tn_cpu_prepare_copy TN_AT_LEVEL(tn_cpu_prepare_copy)
#define tn_cpu_prepare_accum TN_AT_LEVEL(tn_cpu_prepare_accum)
#define tn_cpu_prepare_expand TN_AT_LEVEL(tn_cpu_prepare_expand)
#define tn_cpu_prepare_cast TN_AT_LEVEL(tn_cpu_prepare_cast)
#define tn_cpu_prepare_dropout TN_AT_LEVEL(tn_cpu_prepare_dropout)
#define tn_cpu_prepare_embed TN_AT_LEVEL(tn_cpu_prepare_embed)
#define tn_cpu_prepare_embed_bwd TN_AT_LEVEL(tn_cpu_prepare_embed_bwd)
#define tn_cpu_prepare_layernorm TN_AT_LEVEL(tn_cpu_prepare_layernorm)
#define tn_cpu_prepare_ln_dx TN_AT_LEVEL(tn_cpu_prepare_ln_dx)
#define tn_cpu_prepare_ln_dw TN_AT_LEVEL(tn_cpu_prepare_ln_dw)
#define tn_cpu_prepare_rmsnorm TN_AT_LEVEL(tn_cpu_prepare_rmsnorm)
#define tn_cpu_prepare_rms_dx TN_AT_LEVEL(tn_cpu_prepare_rms_dx)
#define tn_cpu_prepare_rms_dw TN_AT_LEVEL(tn_cpu_prepare_rms_dw)
#define tn_cpu_prepare_rope TN_AT_LEVEL(tn_cpu_prepare_rope)
#define tn_cpu_prepare_route TN_AT_LEVEL(tn_cpu_prepare_route)
#define tn_cpu_prepare_arrange TN_AT_LEVEL(tn_cpu_prepare_arrange)
#define tn_cpu_prepare_dispatch TN_AT_LEVEL(tn_cpu_prepare_dispatch)
#define tn_cpu_prepare_combine TN_AT_LEVEL(tn_cpu_prepare_combine)
#define tn_cpu_prepare_gate_bwd TN_AT_LEVEL(tn_cpu_prepare_gate_bwd)
#define tn_cpu_prepare_grouped TN_AT_LEVEL(tn_cpu_prepare_grouped)
#define tn_cpu_prepare_grouped_dw TN_AT_LEVEL(tn_cpu_prepare_grouped_dw)
#define tn_cpu_prepare_attention TN_AT_LEVEL(tn_cpu_prepare_attention)
#define tn_cpu_prepare_attn_bwd TN_AT_LEVEL(tn_cpu_prepare_attn_bwd)
#define tn_cpu_prepare_ce TN_AT_LEVEL(tn_cpu_prepare_ce)
#define tn_cpu_prepare_ce_bwd TN_AT_LEVEL(tn_cpu_prepare_ce_bwd)
#define tn_cpu_prepare_head TN_AT_LEVEL(tn_cpu_prepare_head)
#define tn_cpu_prepare_head_bwd TN_AT_LEVEL(tn_cpu_prepare_head_bwd)
#define tn_cpu_prepare_head_train TN_AT_LEVEL(tn_cpu_prepare_head_train)
#define tn_cpu_prepare_store TN_AT_LEVEL(tn_cpu_prepare_store)
#define tn_cpu_attn_few TN_AT_LEVEL(tn_cpu_attn_few)
#define tn_cpu_thin_rect TN_AT_LEVEL(tn_cpu_thin_rect)
#endif
