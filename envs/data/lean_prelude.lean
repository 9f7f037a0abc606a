prelude
-- What the embedded checker knows: logic, equality, and natural numbers, in the names and definitions of Lean's own Init.
-- Lean's compiled tactics look these names up. `lean_embedded.py` appends the registration of tactics and notations.
set_option bootstrap.inductiveCheckResultingUniverse false
set_option genInjectivity false
set_option genSizeOf false
set_option genCtorIdx false
universe u v w u₁ u₂
-- What the code generator of Lean asks for by name.
unsafe axiom lcErased : Type
unsafe axiom lcVoid : Type
unsafe axiom lcAny : Type
unsafe axiom lcProof {α : Prop} : α
unsafe axiom lcCast {α : Sort u} {β : Sort v} (a : α) : β
unsafe axiom lcUnreachable {α : Sort u} : α
noncomputable section
abbrev outParam (α : Sort u) : Sort u := α
def id {α : Sort u} (a : α) : α := a
def letFun {α : Sort u} {β : α → Sort v} (v : α) (f : (x : α) → β x) : β v := f v

-- Logic.
inductive PUnit : Sort u where | unit : PUnit
abbrev Unit : Type := PUnit
inductive True : Prop where | intro : True
inductive False : Prop
inductive PEmpty : Sort u where
def False.elim {C : Sort u} (h : False) : C := False.rec (fun _ => C) h
def Not (a : Prop) : Prop := a → False
def absurd {a : Prop} {b : Sort v} (h₁ : a) (h₂ : Not a) : b := False.elim (h₂ h₁)
theorem trivial : True := True.intro
inductive Eq {α : Sort u} : α → α → Prop where | refl (a : α) : Eq a a
abbrev Eq.ndrec.{u1, u2} {α : Sort u2} {a : α} {motive : α → Sort u1} (m : motive a) {b : α} (h : Eq a b) : motive b :=
  Eq.rec (motive := fun α _ => motive α) m h
theorem rfl {α : Sort u} {a : α} : Eq a a := Eq.refl a
theorem Eq.subst {α : Sort u} {motive : α → Prop} {a b : α} (h₁ : Eq a b) (h₂ : motive a) : motive b := Eq.ndrec h₂ h₁
theorem Eq.symm {α : Sort u} {a b : α} (h : Eq a b) : Eq b a := Eq.subst (motive := fun x => Eq x a) h (Eq.refl a)
theorem Eq.trans {α : Sort u} {a b c : α} (h₁ : Eq a b) (h₂ : Eq b c) : Eq a c := Eq.subst (motive := fun x => Eq a x) h₂ h₁
def cast {α β : Sort u} (h : Eq α β) (a : α) : β := Eq.rec (motive := fun α _ => α) a h
def Eq.mp {α β : Sort u} (h : Eq α β) (a : α) : β := cast h a
def Eq.mpr {α β : Sort u} (h : Eq α β) (b : β) : α := cast (Eq.symm h) b
theorem congrArg {α : Sort u} {β : Sort v} {a₁ a₂ : α} (f : α → β) (h : Eq a₁ a₂) : Eq (f a₁) (f a₂) :=
  Eq.subst (motive := fun x => Eq (f a₁) (f x)) h (Eq.refl (f a₁))
theorem congrFun {α : Sort u} {β : α → Sort v} {f g : (x : α) → β x} (h : Eq f g) (a : α) : Eq (f a) (g a) :=
  Eq.subst (motive := fun (k : (x : α) → β x) => Eq (f a) (k a)) h rfl
theorem congr {α : Sort u} {β : Sort v} {f₁ f₂ : α → β} {a₁ a₂ : α} (h₁ : Eq f₁ f₂) (h₂ : Eq a₁ a₂) : Eq (f₁ a₁) (f₂ a₂) :=
  Eq.subst (motive := fun (k : α → β) => Eq (f₁ a₁) (k a₂)) h₁ (congrArg f₁ h₂)
inductive HEq : {α : Sort u} → α → {β : Sort u} → β → Prop where | refl {α : Sort u} (a : α) : HEq a a
theorem HEq.rfl {α : Sort u} {a : α} : HEq a a := HEq.refl a
theorem eq_of_heq {α : Sort u} {a a' : α} (h : HEq a a') : Eq a a' :=
  have : (α β : Sort u) → (a : α) → (b : β) → HEq a b → (h : Eq α β) → Eq (cast h a) b :=
    fun α _ a _ h₁ => HEq.rec (motive := fun {β} (b : β) (_ : HEq a b) => (h₂ : Eq α β) → Eq (cast h₂ a) b) (fun (_ : Eq α α) => rfl) h₁
  this α α a a' h rfl
theorem heq_of_eq {α : Sort u} {a a' : α} (h : Eq a a') : HEq a a' := Eq.rec (motive := fun b _ => HEq a b) (HEq.refl a) h
abbrev Ne {α : Sort u} (a b : α) : Prop := Not (Eq a b)
theorem Ne.symm {α : Sort u} {a b : α} (h : Ne a b) : Ne b a := fun g => h (Eq.symm g)
structure PProd (α : Sort u) (β : Sort v) where
  fst : α
  snd : β
structure And (a b : Prop) : Prop where
  intro ::
  left : a
  right : b
inductive Or (a b : Prop) : Prop where
  | inl (h : a) : Or a b
  | inr (h : b) : Or a b
theorem Or.elim {a b c : Prop} (h : Or a b) (left : a → c) (right : b → c) : c := Or.rec (motive := fun _ => c) left right h
structure Iff (a b : Prop) : Prop where
  intro ::
  mp : a → b
  mpr : b → a
theorem Iff.rfl {a : Prop} : Iff a a := Iff.intro (fun h => h) (fun h => h)
inductive Exists {α : Sort u} (p : α → Prop) : Prop where | intro (w : α) (h : p w) : Exists p
theorem Exists.elim {α : Sort u} {p : α → Prop} {b : Prop} (h : Exists p) (h' : (a : α) → p a → b) : b :=
  Exists.rec (motive := fun _ => b) h' h
axiom propext {a b : Prop} : Iff a b → Eq a b
theorem of_eq_true {p : Prop} (h : Eq p True) : p := cast (Eq.symm h) True.intro
theorem eq_self {α : Sort u} (a : α) : Eq (Eq a a) True := propext (Iff.intro (fun _ => True.intro) (fun _ => Eq.refl a))
structure PULift (α : Sort u₁) : Sort (max u₁ u₂ 1) where
  up ::
  down : α

-- Data: truth values and natural numbers.
inductive Bool : Type where
  | false : Bool
  | true : Bool
@[macro_inline] def cond {α : Sort u} : (c : Bool) → (x y : α) → α := fun c x y => Bool.rec y x c
class inductive Decidable (p : Prop) where
  | isFalse (h : Not p) : Decidable p
  | isTrue (h : p) : Decidable p
class CoeFun (α : Sort u) (γ : (α → Sort v)) where
  coe : (f : α) → γ f
inductive Nat where
  | zero : Nat
  | succ (n : Nat) : Nat
class OfNat (α : Type u) (_ : Nat) where
  ofNat : α
@[default_instance 100] instance instOfNatNat (n : Nat) : OfNat Nat n := ⟨n⟩
class HAdd (α : Type u) (β : Type v) (γ : outParam (Type w)) where
  hAdd : α → β → γ
class Add (α : Type u) where
  add : α → α → α
class HMul (α : Type u) (β : Type v) (γ : outParam (Type w)) where
  hMul : α → β → γ
class Mul (α : Type u) where
  mul : α → α → α
@[default_instance] instance instHAdd {α : Type u} [Add α] : HAdd α α α := ⟨Add.add⟩
@[default_instance] instance instHMul {α : Type u} [Mul α] : HMul α α α := ⟨Mul.mul⟩
class LE (α : Type u) where
  le : α → α → Prop
class LT (α : Type u) where
  lt : α → α → Prop
def Nat.add : (m n : Nat) → Nat := fun m n => Nat.rec m (fun _ r => Nat.succ r) n
def Nat.mul : (m n : Nat) → Nat := fun m n => Nat.rec Nat.zero (fun _ r => Nat.add r m) n
def Nat.ble : (m n : Nat) → Bool := fun m =>
  Nat.rec (fun _ => Bool.true) (fun _ ih n => Nat.rec Bool.false (fun n' _ => ih n') n) m
instance : Add Nat := ⟨Nat.add⟩
instance : Mul Nat := ⟨Nat.mul⟩
inductive Nat.le (n : Nat) : Nat → Prop where
  | refl : Nat.le n n
  | step {m : Nat} : Nat.le n m → Nat.le n (Nat.succ m)
instance : LE Nat := ⟨Nat.le⟩
instance : LT Nat := ⟨fun n m => Nat.le (Nat.succ n) m⟩
-- Lean marks unfinished proofs with this axiom; the checker rejects them.
axiom sorryAx (α : Sort u) (synthetic : Bool) : α
end
