//! An address range is unmapped or changes its rights only with a gather, which settles when the change is complete.
use pagefold_mm::api::Prot;
use pagefold_mm::space::{Vma, VmaTree};
use pagefold_mm::units::*;

pub fn change(vmas: &mut VmaTree, vma: Vma) {
    vmas.remove(Vpn(1));
    vmas.protect(Vpn(1), Prot::READ);
    vmas.update(Vpn(1), |vma| vma.view.prot = Prot::READ);
    vmas.join(Vpn(1), |_, _| ());
    vmas.insert(vma);
}

fn main() {}
